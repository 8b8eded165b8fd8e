"""The timeline of a run as an SVG."""

from html import escape
from itertools import groupby
from zlib import crc32

from chaos.checker.rates import JITTER

LEFT, RIGHT, TOP = 190, 110, 64
ROW, BAR, GAP = 15, 11, 20
LEAST_WIDTH, MOST_WIDTH, SCALE = 900, 2600, 16  # pixels; a second
CHART = 70  # pixels: a limit's own height

COLOURS = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7"),
    *("#2f6690", "#c56a1a", "#3b7d33", "#86568f"),
)
RED, GREY, INK, FAINT = "#d62728", "#b9bcc2", "#24292f", "#e7e9ed"

OF_NODES, OF_SERVERS, OF_LINKS = "nodes", "servers", "links, broker"
AREAS = {
    OF_SERVERS: ("restart server", "flush", "freeze server", "fill"),
    OF_LINKS: ("cut", "hang", "slow", "lossy", "restart broker"),
}


class Picture:
    """Grows downwards, section by section."""

    def __init__(self, evidence, violations):
        self.evidence = evidence
        self.violations = violations
        self.begin = min(
            [evidence.begin, *(span.first for span in evidence.spans)], default=evidence.begin
        )
        self.seconds = max(1.0, evidence.end - self.begin)
        self.width = min(MOST_WIDTH, max(LEAST_WIDTH, self.seconds * SCALE))
        self.y = TOP
        self.parts = []

    def x(self, at):
        return round(LEFT + (at - self.begin) / self.seconds * self.width, 1)

    def bar(self, begin, end, colour, title, *, y=None, height=BAR, least=1.5):
        left = self.x(begin)
        width = max(least, round(self.x(end) - left, 1))
        top = self.y if y is None else y
        self.parts.append(
            f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height}" fill="{colour}">'
            f"<title>{escape(title)}</title></rect>"
        )

    def text(self, x, y, words, *, size=11, colour=INK, anchor="start", weight="normal"):
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escape(str(words))}</text>'
        )

    def path(self, points, colour, *, close=False, width=1.0):
        """A line through *points*, or an area of that colour."""
        drawn = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        look = f'fill="{colour}"' if close else f'fill="none" stroke="{colour}"'
        self.parts.append(f'<path d="{drawn}" {look} stroke-width="{width}"/>')

    def section(self, title, says):
        self.y += GAP
        self.text(8, self.y + 9, title, size=13, weight="bold")
        self.text(LEFT, self.y + 9, says, size=11, colour="#57606a")
        self.y += ROW + 4

    def label(self, words):
        self.text(LEFT - 8, self.y + BAR - 2, words, anchor="end")

    def row(self, words):
        """Begin the next row."""
        self.label(words)
        self.path([(LEFT, self.y + BAR / 2), (LEFT + self.width, self.y + BAR / 2)], FAINT)

    # -- the sections ---------------------------------------------------------------------------

    def faults(self):
        self.section("What was broken", "from when to when; the shaded times are left alone")
        found = sorted(self.evidence.faults.values(), key=lambda fault: fault.begin)
        for area in (OF_SERVERS, OF_LINKS, OF_NODES):
            self.label(area)
            ends = []
            for fault in (fault for fault in found if _area(fault.kind) == area):
                words = _short(fault)
                left = self.x(fault.begin)
                right = max(self.x(fault.end), left + 6 + 5.6 * len(words))
                lane = next((n for n, end in enumerate(ends) if end < left), len(ends))
                ends[lane : lane + 1] = [right + 4]
                y = self.y + lane * ROW
                colour = RED if fault.lost is not None else "#8c6d31" if area != OF_NODES else GREY
                self.bar(fault.begin, fault.end, colour, f"{fault.kind} {fault.target}", y=y)
                self.text(left + 2, y + BAR - 2, words, size=10)
            self.y += max(1, len(ends)) * ROW + 3

    def owners(self):
        self.section("Who owned slots", "a bar while a worker answers; its colour is the share i/n")
        spans = sorted(self.evidence.spans, key=lambda span: span.by)
        firsts = {}
        for span in spans:
            firsts[span.by] = min(firsts.get(span.by, span.first), span.first)
        for by, mine in groupby(sorted(spans, key=lambda s: (firsts[s.by], s.by)), lambda s: s.by):
            self.row(by)
            shown = {(span.i, span.n, round(span.first, 1)): span for span in mine}
            for span in shown.values():
                share = f"{span.i}/{span.n}"
                self.bar(span.first, span.last, COLOURS[span.i % len(COLOURS)], f"{by} {share}")
                if self.x(span.last) - self.x(span.first) > 26:
                    x = self.x(span.first) + 3
                    self.text(x, self.y + BAR - 2, share, size=9, colour="white")
            self.y += ROW

    def holders(self):
        self.section(
            "Who held a key",
            "a bar from the first to the last moment at which a lease was seen to live; "
            "its colour is the worker, a red end a lease that was lost",
        )
        leases = [lease for lease in self.evidence.leases.values() if lease.last is not None]
        for key in sorted({key for lease in leases for key in lease.keys}):
            self.row(key)
            for lease in sorted(leases, key=lambda lease: lease.first):
                if key in lease.keys:
                    self.bar(lease.first, lease.last, _colour(lease.by), str(lease))
                    if lease.lost is not None:
                        self.bar(lease.last, lease.last, RED, "lost", least=2)
            self.y += ROW

    def ticks(self):
        self.section(
            "What beats sent",
            "a stroke a tick, when it was sent; orange: more than 1 s late; all slots in one row",
        )
        wall = [(tick.sent, min(tick.seen)) for tick in self.evidence.ticks.values() if tick.seen]
        apart = min((sent - seen for sent, seen in wall), default=0.0)
        ticks = sorted(self.evidence.ticks.values(), key=lambda tick: tick.entry)
        for entry, mine in groupby(ticks, lambda tick: tick.entry):
            every, slots = self.evidence.plan["schedule"][entry]
            self.row(f"{entry}: {slots} slots, {every:g} s" if slots else f"{entry}: {every:g} s")
            on_time, late = [], []
            for tick in mine:
                at = tick.sent - apart
                (late if tick.sent - tick.due > 1 else on_time).append(self.x(at))
            self._strokes(on_time, "#3b7d33", BAR)
            self._strokes(late, "#e8710a", BAR)
            self.y += ROW

    def _strokes(self, xs, colour, height):
        if xs:
            drawn = "".join(f"M{x:g} {self.y:g}v{height}" for x in sorted(set(xs)))
            self.parts.append(f'<path d="{drawn}" stroke="{colour}" stroke-width="1.2"/>')

    def rates(self):
        self.section(
            "What started",
            "a bucket that each start fills and that drains at the rate; "
            "the red line is the limit: the burst, and 50 ms",
        )
        for limit, times in sorted(self.evidence.starts.items()):
            rate, burst = self.evidence.plan["limits"][limit.split()[0]]
            most = burst + rate * JITTER
            height = CHART if burst > 1 else CHART // 2
            floor = self.y + height
            unit = height / (1.2 * most + 1)
            level, before, points = 0.0, self.begin, [(LEFT, floor)]
            for at in times:
                drained = max(0.0, level - rate * (at - before))
                if drained == 0.0 and level:
                    points.append((self.x(before + level / rate), floor))
                points.append((self.x(at), round(floor - drained * unit, 1)))
                level, before = drained + 1, at
                points.append((self.x(at), round(floor - level * unit, 1)))
            points.append((self.x(min(before + level / rate, self.evidence.end)), floor))
            self.text(LEFT - 8, floor - height / 2, limit, anchor="end")
            self.text(LEFT - 8, floor - height / 2 + 12, f"{rate:g}/s, burst {burst}", anchor="end")
            self.path(points, "#4e79a7", close=True)
            line = round(floor - most * unit, 1)
            self.path([(LEFT, line), (LEFT + self.width, line)], RED, width=0.8)
            self.path([(LEFT, floor), (LEFT + self.width, floor)], GREY, width=0.8)
            self.y = floor + 8

    def wrongs(self):
        self.section("What was violated", "" if self.violations else "nothing")
        for violation in self.violations[:40]:
            self.bar(violation.at, violation.at, RED, violation.text, least=3)
            self.label(violation.guarantee)
            self.text(self.x(violation.at) + 6, self.y + BAR - 2, violation.text[:110], size=10)
            self.y += ROW

    # -- the whole ------------------------------------------------------------------------------

    def background(self):
        """Calm times, losses of data, violations and the scale: behind everything else."""
        height = self.y - TOP + 10
        for calm in self.evidence.calms:
            end = self.evidence.end if calm["end"] is None else calm["end"]
            yield self._stripe(calm["begin"], end, height, "#eef6ee")
        for begin, end in self.evidence.losses():
            yield self._stripe(begin, end, height, "#f9d4d4")
        for violation in self.violations:
            yield self._stripe(violation.at, violation.at, height, RED)
        step = next(s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300) if self.seconds / s <= 24)
        for seconds in range(0, int(self.seconds) + 1, step):
            x = self.x(self.begin + seconds)
            yield f'<path d="M{x:g} {TOP}v{height:g}" stroke="{FAINT}"/>'
            yield (
                f'<text x="{x:g}" y="{TOP - 6}" font-size="10" text-anchor="middle" '
                f'fill="{INK}">{seconds} s</text>'
            )

    def _stripe(self, begin, end, height, colour):
        left, right = self.x(begin), self.x(end)
        width = max(1.0, right - left)
        return (
            f'<rect x="{left:g}" y="{TOP}" width="{width:g}" height="{height:g}" fill="{colour}"/>'
        )

    def svg(self):
        for draw_section in (
            self.faults,
            self.owners,
            self.holders,
            self.ticks,
            self.rates,
            self.wrongs,
        ):
            draw_section()
        plan = self.evidence.plan
        width, height = LEFT + self.width + RIGHT, self.y + 24
        servers = plan["servers"]
        title = (
            f"{len(self.evidence.faults)} faults in {self.seconds:.0f} s, "
            f"{servers} arbiter{'s' * (servers > 1)}, "
            f"{len(self.violations) or 'no'} violation{'s' * (len(self.violations) != 1)}"
        )
        box = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif">',
            f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
            f'<text x="8" y="24" font-size="16" font-weight="bold" fill="{INK}">{title}</text>',
        ]
        return "\n".join([*head, *self.background(), *self.parts, "</svg>\n"])


def draw(evidence, violations):
    """The text of the SVG."""
    return Picture(evidence, violations).svg()


def _area(kind):
    return next((area for area, kinds in AREAS.items() if kind.startswith(kinds)), OF_NODES)


def _short(fault):
    """What stands on the bar of a fault."""
    if fault.server is not None:
        return f"{fault.kind.replace(' server', '')} {fault.target.removeprefix('server ')}"
    of = fault.target.split(" (")[0]
    return fault.kind if of in fault.kind else f"{fault.kind} {of}"


def _colour(name):
    return COLOURS[crc32(name.encode()) % len(COLOURS)]

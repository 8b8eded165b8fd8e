"""What the demo shows: redrawn on a terminal, a line now and then elsewhere."""

import sys
import time

# Seconds between two lines where nothing can be redrawn.
PACE = 5

COLOURS = (32, 33, 36, 35, 34, 31)


class Screen:
    def __init__(self, out=sys.stdout):
        self.out = out
        self.live = out.isatty()
        self._height = 0
        self._said = 0.0

    def say(self, text):
        """A line that stays."""
        self._clear()
        print(text, file=self.out, flush=True)

    def show(self, view):
        """How things stand at the moment."""
        if self.live:
            self._clear()
            lines = view.lines()
            self._height = len(lines)
            print("\n".join(lines), file=self.out, flush=True)
        elif time.monotonic() - self._said >= PACE:
            self._said = time.monotonic()
            print(view.line(), file=self.out, flush=True)

    def _clear(self):
        if self._height:
            self.out.write(f"\x1b[{self._height}A\x1b[J")
            self._height = 0


class View:
    """One moment of the fleet."""

    def __init__(self, *, elapsed, workers, owned, locks, swept, synced, rate, limit, total):
        self.elapsed, self.workers, self.owned, self.locks = elapsed, workers, owned, locks
        self.swept, self.synced, self.rate, self.limit = swept, synced, rate, limit
        self.total = total

    def line(self):
        owners = ", ".join(f"{worker.name} {self._share(worker)}" for worker in self.workers)
        return (
            f"{self.elapsed:3.0f} s  {owners}  locks {len(self.locks)}  "
            f"partner {self.rate}/s  syncs {self.synced}  sweeps {self.swept}"
        )

    def lines(self):
        lines = ["", f"{self.elapsed:3.0f} s   slots, each by its owner"]
        letters = self._letters()
        half = self.total // 2
        lines += [f"        {''.join(letters[:half])}", f"        {''.join(letters[half:])}", ""]
        for number, worker in enumerate(self.workers):
            mark = _coloured(number, f"{chr(ord('A') + number)} {worker.name:8}")
            lines.append(f"        {mark}  {self._share(worker)}")
        held = " ".join(f"{lock.key.rpartition(':')[2]}" for lock in self.locks) or "none"
        lines += [
            "",
            f"        accounts locked   {held}",
            f"        partner called    {self.rate} times in the last second, {self.limit}",
            f"        done              {self.synced} syncs, {self.swept} slots swept",
            "",
        ]
        return lines

    def _share(self, worker):
        owned = self.owned.get(worker.name)
        if worker.state == "killed":
            return "killed"
        return "owns nothing" if owned is None else f"{owned[0]} of {owned[1]}"

    def _letters(self):
        letters = ["."] * self.total
        for number, worker in enumerate(self.workers):
            owned = self.owned.get(worker.name)
            if owned is not None:
                for slot in range(owned[0], self.total, owned[1]):
                    letters[slot] = _coloured(number, chr(ord("A") + number))
        return letters


def _coloured(number, text):
    return f"\x1b[{COLOURS[number % len(COLOURS)]}m{text}\x1b[0m"


def table(facts):
    """The facts, and whether each is true."""
    claims = max(len(fact.claim) for fact in facts)
    checked = max(len(fact.checked) for fact in facts)
    lines = []
    for fact in facts:
        verdict = "NO" if fact.against else "yes"
        lines.append(f"  {fact.claim:{claims}}  {fact.checked:{checked}}  {verdict}")
        lines += [f"      {each}" for each in fact.against[:5]]
        if len(fact.against) > 5:
            lines.append(f"      and {len(fact.against) - 5} more")
    return lines

"""How many started: no window holds more than its limit allows."""

from chaos.checker.evidence import Violation

JITTER = 0.05  # seconds that a start may be shifted on a task's own clock

# Seconds after the loss of its data for which a store may meet those who were charged before it.
ASLEEP = 0.6


def within_limits(evidence):
    """
    RATE-01: in each window of t seconds at most ``burst + rate * (t + 50 ms)`` starts.

    A store that lost its data forgives one burst, and one start that nobody had noticed yet.
    """
    for limit, times in evidence.starts.items():
        rate, burst = evidence.plan["limits"][limit.split()[0]]
        over, begin, end = worst_window(times, rate, burst, evidence.losses())
        if over > 0:
            held = [at for at in times if begin <= at <= end]
            yield Violation(
                "RATE-01",
                end,
                f"{limit}: {len(held)} starts in {end - begin:.3f} s, where a rate of {rate:g}/s "
                f"with a burst of {burst} allows {len(held) - over:.1f}",
                tuple(held),
            )


def worst_excess(times, rate, burst=1, losses=()):
    """By how much the fullest window is above its limit."""
    return worst_window(times, rate, burst, losses)[0]


def worst_window(times, rate, burst=1, losses=()):
    """
    The window that is furthest above its limit, or nearest below: by how much, from, to.

    A window that touches a loss of data may hold one burst more for it, and one.
    """
    times = sorted(times)
    begins = sorted(begin for begin, _ in losses)
    ends = sorted(end + ASLEEP for _, end in losses)
    begun = ended = 0
    lowest, since, worst = None, 0.0, (-float("inf"), 0.0, 0.0)
    for number, at in enumerate(times):
        while ended < len(ends) and ends[ended] < at:
            ended += 1
        while begun < len(begins) and begins[begun] <= at:
            begun += 1
        before = number - rate * at - (burst + 1) * ended
        if lowest is None or before < lowest:
            lowest, since = before, at
        over = number + 1 - rate * at - (burst + 1) * begun - lowest - burst - rate * JITTER
        worst = max(worst, (over, since, at))
    return worst

"""What was sent: every instant of every entry, once."""

from collections import defaultdict
from itertools import pairwise

from chaos.checker.evidence import AFTERMATH, Violation

# Workers that cannot ask the arbiter run a tick unchecked after so many seconds; a little less.
PATIENCE = 2.5

ROUNDING = 0.05  # seconds


def one_run(evidence):
    """
    BEAT-03: of the copies of a tick's message one ran; a redelivery of that copy is no other.

    Not where the arbiter lost its data meanwhile, or did not answer for longer than workers wait.
    """
    for tick in evidence.ticks.values():
        copies = sorted({copy: at for at, copy, _ in reversed(tick.runs)}.values())
        if len(copies) > 1 and not _is_excused(evidence, tick):
            yield Violation(
                "BEAT-03",
                copies[1],
                f"{_name(tick)}: {len(copies)} copies of one tick ran, "
                f"{copies[1] - copies[0]:.3f} s apart",
                tuple(tick.runs),
            )


def _is_excused(evidence, tick):
    first, last = min(tick.seen), max(tick.seen)
    if any(begin <= last and first <= end + AFTERMATH for begin, end in evidence.losses()):
        return True
    return any(
        end - begin >= PATIENCE and begin <= last and first <= end + AFTERMATH
        for begin, end in evidence.disturbances(0)
    )


def one_tick_an_instant(evidence):
    """BEAT-01: no instant was sent as two ticks."""
    for ticks in _by_unit(evidence).values():
        for tick, after in pairwise(ticks):
            if after.due == tick.due and not _lost_between(evidence, tick, after):
                yield Violation(
                    "BEAT-01",
                    max(after.seen),
                    f"{_name(tick)}: one instant was sent as two ticks",
                    (tick, after),
                )


def none_lost(evidence):
    """
    BEAT-02: what follows a tick is the next instant, or what had come due when it was sent late.

    Not where the arbiter lost its data in between: then counting starts anew.
    """
    for (entry, _), ticks in _by_unit(evidence).items():
        every, _ = evidence.plan["schedule"][entry]
        for tick, after in pairwise(ticks):
            if _lost_between(evidence, tick, after):
                continue
            steps = (after.due - tick.due) / every
            missed = after.due - tick.sent - every
            if missed > ROUNDING:
                yield Violation(
                    "BEAT-02",
                    max(after.seen),
                    f"{_name(after)}: nothing was sent for the {round(missed / every) or 1} "
                    f"instants before it; the tick before was sent {after.due - tick.sent:.2f} s "
                    f"earlier, and one comes every {every:g} s",
                    (tick, after),
                )
            elif abs(steps - round(steps)) > 1e-3:
                yield Violation(
                    "BEAT-02",
                    max(after.seen),
                    f"{_name(after)}: {steps:.3f} intervals after the one before: "
                    "the pace is not kept",
                    (tick, after),
                )


def not_late_for_ever(evidence):
    """BEAT-02: left alone for long enough, beats send every entry and slot again."""
    wanted = units_of(evidence.plan["schedule"])
    for calm in evidence.calms:
        begin, limit = calm["begin"], calm["limit"]
        end = evidence.end if calm["end"] is None else calm["end"]
        if not calm["ticks"] or end - begin < limit:
            continue
        missing = wanted - sent_since(evidence.ticks.values(), begin)
        if missing:
            yield Violation(
                "BEAT-02",
                begin + limit,
                f"left alone for {end - begin:.1f} s, beats sent nothing for "
                f"{len(missing)} of {len(wanted)} entries and slots",
                tuple(sorted(missing, key=str)),
            )


def units_of(schedule):
    """All that is due by itself: entries, and the slots of partitioned ones."""
    return {
        (entry, slot)
        for entry, (_, slots) in schedule.items()
        for slot in (range(slots) if slots else [None])
    }


def sent_since(ticks, begin):
    return {(tick.entry, tick.slot) for tick in ticks if max(tick.seen) >= begin}


def _by_unit(evidence):
    found = defaultdict(list)
    for tick in evidence.ticks.values():
        found[tick.entry, tick.slot].append(tick)
    for ticks in found.values():
        ticks.sort(key=lambda tick: tick.due)
    return found


def _lost_between(evidence, tick, after):
    first, last = min(tick.seen), max(after.seen)
    return any(begin <= last and first <= end + AFTERMATH for begin, end in evidence.losses())


def _name(tick):
    return tick.entry if tick.slot is None else f"{tick.entry}, slot {tick.slot}"

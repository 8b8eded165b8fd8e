"""Whose the slots were: never two owners, and all of them owned once the fleet is left alone."""

from math import gcd

from chaos.checker.evidence import Violation


def one_owner(evidence):
    """PART-01: no two replicas answered the same slot at the same time."""
    for one, other in conflicts(evidence.spans):
        until = min(one.last, other.last)
        yield Violation(
            "PART-01",
            other.first,
            f"{one.by} answered slots as {one.i} of {one.n} and {other.by} as {other.i} of "
            f"{other.n}, for {until - other.first:.3f} s",
            (one, other),
        )


def conflicts(spans):
    """Pairs of spans of different replicas that have a slot in common at one moment."""
    live = []
    for span in sorted(spans, key=lambda span: span.first):
        live = [one for one in live if one.last > span.first]
        for one in live:
            if one.by != span.by and (one.i - span.i) % gcd(one.n, span.n) == 0:
                yield one, span
        live.append(span)


def settles(evidence):
    """PART-02, PART-03: left alone for long enough, the replicas own all slots between them."""
    for calm in evidence.calms:
        begin, limit = calm["begin"], calm["limit"]
        end = evidence.end if calm["end"] is None else calm["end"]
        if complete_since(evidence.spans, begin, end) is None and end - begin >= limit:
            seen = [span for span in evidence.spans if span.last > begin and span.first < end]
            yield Violation(
                "PART-02",
                begin + limit,
                f"left alone for {end - begin:.1f} s, the fleet never owned all slots",
                tuple(seen),
            )


def complete_since(spans, begin, end):
    """The first moment from *begin* to *end* at which all slots are owned; None: there is none."""
    spans = [span for span in spans if span.last > begin and span.first < end]
    moments = sorted({max(begin, span.first) for span in spans})
    return next((at for at in moments if is_complete(spans, at)), None)


def is_complete(spans, at):
    """Whether the shares that are owned at that moment are all there are."""
    owned = {(span.i, span.n) for span in spans if span.first <= at <= span.last}
    return bool(owned) and sum(1 / n for _, n in owned) > 1 - 1e-9

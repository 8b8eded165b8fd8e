"""One holder, growing fences, no late write, and no lease lost for nothing."""

from chaos.checker.evidence import Violation


def one_holder(evidence):
    """LOCK-01: of the leases of one key, no two were seen to live at the same time."""
    for key in _keys(evidence):
        spans = sorted(
            (lease for lease in evidence.leases.values() if key in lease.keys and lease.last),
            key=lambda lease: lease.first,
        )
        longest = None
        for lease in spans:
            if longest is not None and lease.first < longest.last:
                yield Violation(
                    "LOCK-01",
                    lease.first,
                    f"{key}: {longest} and {lease} lived at the same time, for "
                    f"{min(longest.last, lease.last) - lease.first:.3f} s",
                    (longest, lease),
                )
            if longest is None or lease.last > longest.last:
                longest = lease


def fences_grow(evidence):
    """LOCK-02: a lease asked for after another was given has the larger fence."""
    given = sorted(evidence.leases.values(), key=lambda lease: lease.given)
    asked = sorted(
        (lease for lease in given if lease.asked is not None), key=lambda lease: lease.asked
    )
    largest, at = None, 0
    for lease in asked:
        while at < len(given) and given[at].given < lease.asked:
            if largest is None or given[at].fence > largest.fence:
                largest = given[at]
            at += 1
        if largest is not None and largest.fence >= lease.fence:
            yield _not_larger(lease, largest)
    for key in _keys(evidence):
        largest = None
        for lease in given:
            if key in lease.keys and lease.first is not None:
                if largest is not None and largest.fence >= lease.fence:
                    yield _not_larger(lease, largest)
                if largest is None or lease.fence > largest.fence:
                    largest = lease


def _not_larger(lease, earlier):
    return Violation(
        "LOCK-02",
        lease.given,
        f"{lease} was given after {earlier}, which has not the smaller fence",
        (earlier, lease),
    )


def late_writes(evidence):
    """The guarded table took no write after one of a larger fence."""
    largest = {}
    for key, fence, at, who in evidence.writes:
        before = largest.get(key)
        if before is not None and fence < before[0]:
            yield Violation(
                "FENCE",
                at,
                f"{key}: {who} wrote under fence {fence}, "
                f"{at - before[1]:.3f} s after {before[2]} had under {before[0]}",
                (before, (fence, at, who)),
            )
        else:
            largest[key] = (fence, at, who)


def living_refused(evidence):
    """LOCK-01: a table that refuses a lease which lives has been written to by a later holder."""
    for lease in evidence.leases.values():
        for at, key, lost in lease.refused:
            if not lost:
                yield Violation(
                    "LOCK-01", at, f"{key}: {lease} was refused a write while it lived", (lease,)
                )


def kept_while_calm(evidence):
    """LOCK-06: a lease is renewed, so that nothing but a fault ends it."""
    ttl = evidence.plan["ttl"]
    for lease in evidence.leases.values():
        if lease.lost is not None and evidence.is_quiet(lease.given - ttl, lease.lost):
            yield Violation(
                "LOCK-06",
                lease.lost,
                f"{lease} was lost {lease.lost - lease.given:.2f} s after it was given, "
                "while nothing was broken",
                (lease,),
            )


def _keys(evidence):
    return sorted({key for lease in evidence.leases.values() for key in lease.keys})

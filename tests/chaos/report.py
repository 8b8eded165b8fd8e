"""What is printed of a run."""

from collections import Counter

# Violations of one kind of which all evidence is shown.
SHOWN = 3


def text(evidence, violations, seconds):
    """What was broken, what was done, and what did not hold."""
    faults = Counter(fault.kind for fault in evidence.faults.values())
    lines = [f"\nAfter {seconds:.0f} s.  What was broken:"]
    lines += [f"  {count:5}  {kind}" for kind, count in sorted(faults.items())] or ["  nothing"]
    lines.append("What was done:")
    lines += [f"  {count:5}  {what}" for what, count in operations(evidence).items()]
    count = len(violations)
    lines.append(f"\n{count} violation{'s' * (count != 1)}." if count else "\nNo violation.")
    shown = {}
    for violation in violations:
        count = shown[violation.guarantee] = shown.get(violation.guarantee, 0) + 1
        if count <= SHOWN:
            lines += described(violation, evidence)
    for guarantee, count in shown.items():
        if count > SHOWN:
            lines.append(f"... and {count - SHOWN} more of {guarantee}")
    return "\n".join(lines)


def operations(evidence):
    counts = evidence.counts
    return {
        "leases": counts["given"],
        "leases lost": counts["lost"],
        "writes that the table took": len(evidence.writes),
        "late writes that it refused": counts["refused"],
        "starts under a limit": counts["start"],
        "ticks sent": len(evidence.ticks),
        "ticks run": sum(bool(tick.runs) for tick in evidence.ticks.values()),
        "spans of owned slots": len(evidence.spans),
        "looks at the keys": counts["look"],
        "workers and beats started": counts["spawned"],
        "of them ended by Celery or kombu": sum(not each["ours"] for each in evidence.ended),
    }


def described(violation, evidence):
    """*violation* with what shows it, and what was broken around it."""
    at = violation.at
    yield f"{violation.guarantee} at {at - evidence.begin:.3f} s: {violation.text}"
    for each in violation.evidence[:10]:
        yield f"      {each}"
    for fault in evidence.faults.values():
        if fault.begin - 1 <= at <= fault.end + 5:
            begin, end = fault.begin - evidence.begin, fault.end - evidence.begin
            yield f"      meanwhile {begin:.3f} to {end:.3f} s: {fault.kind} {fault.target}"

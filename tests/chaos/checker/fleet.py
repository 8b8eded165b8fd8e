"""What is left on the servers, and whether everybody stayed until he was ended."""

from chaos.checker.evidence import Violation


def keys_run_out(evidence):
    """Every key has a ttl but for two, and no lock is left when the last ttl has passed."""
    for look in evidence.looks:
        for key in look["endless"]:
            yield Violation("KEYS", look["t"], f"server {look['server']}: {key} never runs out")
        for key in look.get("left", ()):
            yield Violation(
                "KEYS",
                look["t"],
                f"server {look['server']}: {key} is left {look['after']:.1f} s after the end of "
                "the last holder",
            )


def nobody_gave_up(evidence):
    """
    Whatever is broken around it, a worker or beat goes on until it is ended.

    Or until Celery or kombu give up by themselves, without the package having a part in it.
    """
    for record in evidence.ended:
        if record["ours"]:
            yield Violation(
                "ALIVE",
                record["t"],
                f"{record['node']} ended by itself, with {record['code']}",
                (record["log"],),
            )

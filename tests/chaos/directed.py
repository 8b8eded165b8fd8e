"""Short plays in which one fault, at the right moment, makes one broken build do wrong."""

from celery_atomicity.testing import wait_until
from chaos.feeder import Feeder
from chaos.stage import Stage

# Seconds that anything may take here on a machine that is busy.
LONG = 40.0


class Directed:
    """A small fleet that is told what to do, and what it wrote down."""

    def __init__(self, stage, kinds):
        self.stage = stage
        for kind in kinds:
            stage.spawn(kind)
        stage.come_up()
        self.feeder = Feeder(stage, 0)
        self.faults = 0

    def close(self):
        self.feeder.close()

    def send(self, *message):
        wait_until(lambda: self.feeder.send(*message), LONG, "a message is sent")

    def seen(self):
        return self.stage.evidence()

    def until(self, condition, what):
        """Wait until *condition* is true of the evidence."""
        return wait_until(lambda: condition(self.seen()), LONG, what)

    def fault(self, kind, target):
        self.faults += 1
        self.stage.journal.note("fault", n=self.faults, kind=kind, target=str(target))

    def holder(self):
        """The node of the first lease, once it has been given."""
        name = self.until(
            lambda seen: next((one.by for one in seen.leases.values() if one.last), None),
            "a lease is given",
        )
        return next(node for node in self.stage.nodes if node.name == name)

    def settled(self, count):
        self.until(
            lambda seen: len({(s.by, s.i) for s in seen.spans if s.n == count}) == count,
            f"{count} workers own all slots",
        )


def renewal(it):
    """A task that holds a key for longer than its ttl, and nothing else."""
    it.send("hold_wait", "a", 1.6 * it.stage.ttl)
    it.until(
        lambda seen: any(
            one.lost or one.last - one.given > 1.5 * it.stage.ttl
            for one in seen.leases.values()
            if one.last
        ),
        "the task ends",
    )


def fence(it):
    """A holder that is frozen past its lease, and goes on to write when another one has written."""
    it.send("hold_wait", "a", 60.0)
    late = it.holder()
    late.freeze()
    it.fault("freeze worker", late)
    it.send("hold_wait", "a", 0.0)
    it.until(lambda seen: len({who for *_, who in seen.writes}) == 2, "the other one writes")
    late.thaw()
    it.until(
        lambda seen: any(one.lost for one in seen.leases.values()), "the first one has noticed"
    )


def agreement(it):
    """A worker that joins."""
    it.settled(2)
    it.stage.spawn("solo")
    it.stage.come_up()
    it.settled(3)


def claim(it):
    """A beat that dies between publishing and recording, while no worker runs what it sent."""
    workers = [node for node in it.stage.nodes if not node.is_beat]
    it.until(lambda seen: any(tick.runs for tick in seen.ticks.values()), "a tick runs")
    for node in workers:
        node.freeze()
    for node in it.stage.nodes:
        node.expected = True
    it.stage.trap.write_text("after")
    wait_until(lambda: not it.stage.trap.exists(), LONG, "a beat falls")
    it.fault("fell beat in mid-send", "after")
    it.until(
        lambda seen: any(_copies(tick) > 1 for tick in seen.ticks.values()),
        "the other beat sends the same tick",
    )
    later = len(it.seen().ticks) + 2
    it.until(lambda seen: len(seen.ticks) > later, "it goes on, having recorded that")
    for node in workers:
        node.thaw()
    it.until(
        lambda seen: all(tick.runs for tick in list(seen.ticks.values())[:later]), "all of it runs"
    )


def _copies(tick):
    return len(tick.copies)


#: For each broken build: the play, the nodes, and the guarantees of which it is convicted.
PLAYS = {
    "renewal": (renewal, ["solo"], {"LOCK-06"}),
    "fence": (fence, ["solo", "solo"], {"FENCE"}),
    "agreement": (agreement, ["solo", "solo"], {"PART-01"}),
    "claim": (claim, ["solo", "beat", "beat"], {"BEAT-03"}),
}


def direct(name, build=""):
    """What is written down of the play of that *name*, with that broken *build* or none."""
    play, kinds, _ = PLAYS[name]
    schedule = {"one": (1.0, 0)} if "beat" in kinds else {}
    with Stage(1, ttl=1.0, schedule=schedule, broken=build) as stage:
        it = Directed(stage, kinds)
        try:
            play(it)
        finally:
            it.close()
        for node in stage.nodes:
            node.kill()
        stage.nodes.clear()
        return stage.evidence()

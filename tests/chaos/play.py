"""One run: a fleet comes up, a storm blows over it, it is left alone, ends, and is judged."""

from collections import Counter

from chaos.checker import Evidence, judge
from chaos.checker.slots import complete_since
from chaos.checker.ticks import sent_since, units_of
from chaos.feeder import Feeder
from chaos.journal import now
from chaos.stage import SCHEDULE, Stage
from chaos.storm import Storm

FLEET = ("embedded", "threads", "gevent", "solo", "beat", "beat")

# Seconds of storm between two calms, and for which a calm lasts at most: far more than is needed.
STORM, CALM = 25.0, 60.0

SAY, LOOK = 5.0, 1.0  # seconds


class Play:
    """
    Args:
        servers: How many arbiters.
        seed: Decides which faults there are.
        tell: Called with each line of progress.
        options: Of the stage.
    """

    def __init__(self, servers, seed, tell=print, **options):
        self.servers = servers
        self.seed = seed
        self.tell = tell
        self.options = options
        self.doing = "comes up"
        self._seen = Counter()
        self._read = 0
        self._said = self._looked = 0.0

    def run(self, seconds):
        """Play for so long, besides coming up, calming down and ending; the evidence of it."""
        with Stage(self.servers, **self.options) as stage:
            self.stage = stage
            for kind in FLEET:
                stage.spawn(kind)
            stage.come_up()
            self.began = now()
            self.storm = Storm(stage, self.seed, self._rest)
            with Feeder(stage, self.seed):
                self._calm(ticks=False)
                ends = now() + seconds
                while (left := ends - now()) > 0:
                    self.doing = "storm"
                    self.storm.blow(min(STORM, left))
                    self._mend()
                    self._calm(ticks=ends - now() <= 0)
            self.doing = "ends"
            for node in stage.nodes:
                node.kill()
            stage.nodes.clear()
            stage.last_look()
            if stage.keep:
                self.tell(f"Logs and journals are in {stage.directory}")
            return stage.evidence()

    def _mend(self):
        """Heal what is broken, and bring the fleet back to what it was in the beginning."""
        self.storm.heal()
        present = Counter(node.kind for node in self.stage.nodes if not node.expected)
        for kind, count in Counter(FLEET).items():
            for _ in range(count - present[kind]):
                self.stage.spawn(kind)

    def _calm(self, *, ticks):
        """Leave the fleet alone until it is settled again, but not for ever."""
        self.doing = "calm"
        begin = self._all_up()
        self.stage.journal.note("calm", ticks=ticks, limit=CALM)
        wanted = units_of(SCHEDULE) if ticks else set()
        ends = now() + CALM + 2
        next_at = 0.0
        while now() < ends:
            self.storm.step()
            if now() < next_at:
                continue
            next_at = now() + 0.5
            seen = Evidence([r for r in self.stage.reader.read() if _tells(r, begin)])
            settled = complete_since(seen.spans, begin, seen.end) is not None
            if settled and not wanted - sent_since(seen.ticks.values(), begin):
                break
        self.stage.journal.note("stirred")

    def _all_up(self):
        """Wait for the nodes that are about to come up or to end."""
        ends = now() + CALM
        while now() < ends and any(node.expected or not node.ready for node in self.stage.nodes):
            self.storm.step()
        return now()

    def _rest(self):
        if now() - self._looked > LOOK:
            self._looked = now()
            self.stage.look()
        if now() - self._said > SAY:
            self._said = now()
            self.tell(self._progress())

    def _progress(self):
        records = self.stage.reader.read()
        self._seen.update(record["what"] for record in records[self._read :])
        self._read = len(records)
        seen = self._seen
        return (
            f"{now() - self.began:5.0f} s  {self.doing:6}  {len(self.stage.nodes)} nodes  "
            f"{seen['fault']} faults  {seen['given']} leases  "
            f"{seen['start']} starts  {seen['ran']} ticks"
        )


def _tells(record, begin):
    """Whether *record* says something of what was owned and sent from *begin* on."""
    return record["t"] >= begin - 1 and record["what"] in ("owns", "sent", "ran")


def play(servers, seed, seconds, tell=print, **options):
    """Run it; the evidence, and the violations."""
    evidence = Play(servers, seed, tell, **options).run(seconds)
    return evidence, judge(evidence)

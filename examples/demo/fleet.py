"""The workers, what is asked of them, what is seen of them, and whether it is as it should be."""

import json
import logging
import random
import time

from celery_atomicity import Atomicity
from celery_atomicity.overview import look
from demo import facts, observed
from demo.screen import View, table
from demo.workers import Worker
from shop import journal, tasks
from shop.celery import app, name

# Seconds for the workers to begin, and for what was asked for to be done in the end.
BEGIN, END = 20, 25

ACCOUNTS = 8


class Fleet:
    """The demo's play, from the first worker to the verdict."""

    def __init__(self, screen, directory, partner):
        self.screen, self.directory, self.partner = screen, directory, partner
        # What our own connection has to say would only disturb the show.
        logging.getLogger("celery_atomicity").addHandler(logging.NullHandler())
        self.client = journal.client()
        self.clients = Atomicity.of(app).clients
        self.began = time.monotonic()
        self.workers, self.killed_at = [], {}
        self.entries, self.moments, self.ticks_sent, self.received = [], [], [], []
        self.asked = {}
        self.until = 0

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        for worker in self.workers:
            worker.kill()
        for pattern in (f"{name}:*", f"atom:{name}*"):
            for key in self.client.scan_iter(pattern, count=1000):
                self.client.delete(key)
        self.clients.close()
        self.client.close()
        app.close()

    # -- the play ---------------------------------------------------------------------------------

    def play(self, seconds):
        for number in range(3):
            self.start(number)
        if not self.watch(BEGIN, until=lambda: self.settled(3)):
            raise SystemExit(f"The workers did not begin:\n{self.logs()}")
        self.screen.say("Three workers own every slot between them; now there is work to do.")
        self.watch(seconds / 3, working=True)
        self.kill(random.choice(self.workers))
        self.watch(seconds / 6, working=True)
        self.screen.say("A new worker starts.")
        self.start(3)
        self.watch(seconds / 2, working=True)
        self.screen.say("Nothing more is asked for; what was is done to its end.")
        self.until = round(time.time() * 1_000_000)
        self.watch(END, until=self.finished)

    def start(self, number):
        self.workers.append(Worker(f"w{number + 1}", self.directory))

    def kill(self, worker):
        worker.kill()
        self.killed_at[worker.name] = time.monotonic()
        self.screen.say(f"{worker.name} is killed, with all its processes (SIGKILL).")

    def watch(self, seconds, *, until=lambda: False, working=False):
        """Look, show, and give work, for so many *seconds* or *until* something is so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.observe()
            self.show()
            if until():
                return True
            if working:
                self.work()
            time.sleep(0.25)
        return False

    def work(self):
        """What a quarter of a second brings: a rush of orders now and then."""
        for _ in range(random.randint(1, 3)):
            self.send(tasks.sync, random.randint(1, ACCOUNTS))
        orders = 25 if random.random() < 0.04 else random.randint(0, 2)
        for _ in range(orders):
            self.send(tasks.call_partner, len(self.asked))

    def send(self, task, argument):
        sent = task.delay(argument).id
        self.asked[sent] = f"{task.name}({argument})", time.monotonic()

    # -- what is seen -----------------------------------------------------------------------------

    def observe(self):
        self.read(journal.KEY, self.entries)
        self.read(observed.MOMENTS, self.moments)
        self.read(observed.SENT, self.ticks_sent)
        self.read(observed.RECEIVED, self.received)

    def read(self, key, known):
        known += map(json.loads, self.client.lrange(key, len(known), -1))

    def dropped(self):
        """
        What was sent to a queue that is empty, and what no worker ever received; as task ids.

        A Redis broker takes a message from its queue before it knows that it arrived: what was on
        its way to a worker at the moment of its death is gone, whatever Celery or we do.
        """
        if not self.killed_at or self.client.llen(f"{name}:{app.conf.task_default_queue}"):
            return set()
        last = max(self.killed_at.values()) + 0.1
        sent = {task for task, (_, at) in self.asked.items() if at < last}
        sent |= {task for task, _, _, at in self.ticks_sent if at < last}
        return sent - set(self.received)

    def owned(self):
        """What each worker owns, by its last word within the last half second."""
        recent = int((time.monotonic() - 0.75) / observed.GRID)
        words = [moment for moment in self.moments[-200:] if moment[0] >= recent]
        return {worker: owned for _, worker, owned in words}

    def settled(self, count):
        owned = [tuple(each) for each in self.owned().values() if each]
        return sorted(owned) == [(i, count) for i in range(count)]

    def finished(self):
        dropped = self.dropped()
        undone = facts.undone(self.entries, self.asked).keys() - dropped
        return not undone and not set(facts.missing_ticks(*self.ticks())) - self.lost(dropped)

    def ticks(self):
        period = round(app.conf.beat_schedule["sweep"]["schedule"] * 1_000_000)
        return self.entries, tasks.SLOTS, period, self.until

    def lost(self, dropped):
        """The *dropped* ticks, as slot and instant."""
        return {
            (slot, facts.instant(due)) for task, slot, due, _ in self.ticks_sent if task in dropped
        }

    def show(self):
        second = time.monotonic() - 1
        self.screen.show(
            View(
                elapsed=time.monotonic() - self.began,
                workers=self.workers,
                owned=self.owned(),
                locks=look(self.clients, name).locks,
                swept=sum(entry["event"] == "sweep" for entry in self.entries),
                synced=sum(entry["event"] == "sync ends" for entry in self.entries),
                rate=sum(call > second for call in self.partner.calls),
                limit=f"at most {tasks.RATE}/s and {tasks.BURST} at once are allowed",
                total=tasks.SLOTS,
            )
        )

    def logs(self):
        """What workers had to complain about."""
        lines = [
            f"{worker.name}: {line}"
            for worker in self.workers
            for line in worker.log.read_text(errors="replace").splitlines()
            if any(word in line for word in ("WARNING", "ERROR", "CRITICAL", "Error"))
        ]
        return "\n".join(lines[-40:])

    # -- the end ----------------------------------------------------------------------------------

    def judge(self):
        dropped = self.dropped()
        found = [
            facts.one_owner(self.moments, tasks.SLOTS),
            facts.one_sync(self.entries, self.killed_at),
            facts.rate_kept(self.partner.calls, tasks.RATE, tasks.BURST),
            facts.one_sweep(*self.ticks(), killed=self.killed_at, dropped=self.lost(dropped)),
            facts.all_done(self.entries, self.asked, dropped),
        ]
        self.screen.say("")
        for line in table(found):
            self.screen.say(line)
        seconds = time.monotonic() - self.began
        if any(fact.against for fact in found):
            self.screen.say(f"\nNot all of it is true, after {seconds:.0f} s. From the logs:")
            self.screen.say(self.logs())
            return 1
        self.screen.say(f"\nAll of it is true, after {seconds:.0f} s.")
        return 0

"""
How long until a fleet goes on after each fault, with the settings that everybody has.

    python benchmarks/recovery.py [--rounds 3]

Three prefork workers with a beat in each, an arbiter and a broker; about three minutes a round.
What is measured is from the fault (of an outage: from its end) until those who are left go on, that
is until the next in line runs, until the slots have owners again, until each of 16 slots of an
entry that is due every second was sent again. docs/failures.md has what came out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from celery import Celery

from celery_atomicity import Atomicity, assigned, current_lease, partitioned, singleton_by
from celery_atomicity.testing import Server, dies_with_us, wait_until

DIRECTORY = Path(os.environ.get("RECOVERY_DIRECTORY", "."))
SLOTS, OUTAGE = 16, 20.0

app = Celery("recovery", broker=os.environ.get("RECOVERY_BROKER", "memory://"))
app.conf.update(
    atomicity_redis=os.environ.get("RECOVERY_ARBITER", ""),
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    beat_schedule={"tick": {"task": "recovery.tick", "schedule": 1.0}},
)
Atomicity(app)


def note(what, **facts):
    """Write down that *what* happened, beside what other processes do; one write is one line."""
    line = json.dumps({"at": time.monotonic(), "what": what, **facts}) + "\n"
    with (DIRECTORY / "journal").open("ab", buffering=0) as journal:
        journal.write(line.encode())


@app.task(name="recovery.hold")
@singleton_by("{key}")
def hold(key, run):
    note("held", key=key, run=run, pid=os.getpid())
    while not (DIRECTORY / f"{key}.{run}").exists():
        if current_lease.lost:
            note("lost", key=key, run=run)
            return
        time.sleep(0.01)


@app.task(name="recovery.tick", ignore_result=True)
@partitioned(slots=SLOTS)
def tick(slot):
    note("tick", slot=slot)


@assigned.connect(weak=False)
def _assigned(group, assignment, **_):
    share = assignment and [assignment.i, assignment.n]
    note("assigned", group=group, worker=os.environ["RECOVERY_NAME"], share=share)


class Worker:
    def __init__(self, fleet, name):
        self.name = name
        self.log = DIRECTORY / f"{name}.log"
        command = [
            *dies_with_us(),
            *(sys.executable, "-m", "celery", "-A", "recovery", "worker", "-n", f"{name}@here"),
            *("-B", "-S", "atomicity", "-c", "2", "-l", "INFO", "--without-mingle"),
            *("-Q", f"celery,{name}"),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=Path(__file__).parent,
                env={**os.environ, **fleet.env, "RECOVERY_NAME": name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Fleet:
    def __init__(self, arbiter, broker):
        self.arbiter = arbiter
        self.env = {
            "RECOVERY_DIRECTORY": str(DIRECTORY),
            "RECOVERY_ARBITER": arbiter.url,
            "RECOVERY_BROKER": broker.url,
        }
        self.made = 0
        self.workers = []
        self.measured = {}
        app.conf.broker_url = broker.url

    def add(self):
        self.made += 1
        self.workers.append(Worker(self, f"w{self.made}"))

    def journal(self, what):
        lines = (DIRECTORY / "journal").read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["what"] == what]

    def settled(self):
        """Whether the workers' shares, and their beats', as they were last told, are complete."""
        for group in ("recovery", "recovery.beat"):
            last = {
                one["worker"]: one["share"]
                for one in self.journal("assigned")
                if one["group"] == group
            }
            shares = [last.get(worker.name) for worker in self.workers]
            if sorted(map(str, shares)) != [str([i, len(shares)]) for i in range(len(shares))]:
                return False
        return True

    def sent_since(self, since):
        return len({one["slot"] for one in self.journal("tick") if one["at"] > since}) == SLOTS

    def measure(self, what, since, condition, timeout=90):
        wait_until(condition, timeout, what)
        self.measured.setdefault(what, []).append(time.monotonic() - since)
        print(f"  {time.monotonic() - since:6.2f} s  {what}", flush=True)

    def hold(self, key, run, worker):
        hold.apply_async((key, run), queue=worker.name)

    def held(self, key, run):
        return next(
            (one for one in self.journal("held") if (one["key"], one["run"]) == (key, run)), None
        )

    def lost(self, key, run):
        return any((one["key"], one["run"]) == (key, run) for one in self.journal("lost"))

    def holder_and_next(self, key):
        """Have one worker's child hold *key*, and another's wait for it; the pid of the first."""
        self.hold(key, 1, self.workers[0])
        wait_until(lambda: self.held(key, 1), 60, f"{key} is held")
        self.hold(key, 2, self.workers[1])
        line = f"atom:recovery:line:recovery.hold:{key}"
        wait_until(lambda: self.arbiter.cli("ZCARD", line) == 1, 60, f"one waits for {key}")
        time.sleep(random.uniform(0, 10 / 3))
        return self.held(key, 1)["pid"]

    def end(self, key):
        for run in (1, 2):
            (DIRECTORY / f"{key}.{run}").touch()

    def at_rest(self):
        """Wait until all is settled, and one to two intervals longer: no fault knows the phase."""
        wait_until(self.settled, 120, "the fleet is settled")
        time.sleep(random.uniform(5, 10))


def child_killed(fleet, key):
    pid = fleet.holder_and_next(key)
    since = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    fleet.measure("pool child killed: the next in line runs", since, lambda: fleet.held(key, 2))


def worker_killed(fleet, key):
    fleet.holder_and_next(key)
    worker = fleet.workers.pop(0)
    since = time.monotonic()
    worker.kill()
    fleet.measure("worker killed: the next in line runs", since, lambda: fleet.held(key, 2))
    fleet.measure("worker killed: its slots have owners", since, fleet.settled)
    fleet.measure("worker killed: all ticks are sent", since, lambda: fleet.sent_since(since + 1))
    since = time.monotonic()
    fleet.add()
    fleet.measure("worker started: it has its share", since, fleet.settled)


def worker_stopped(fleet, _key):
    worker = fleet.workers.pop(0)
    since = time.monotonic()
    worker.process.terminate()
    fleet.measure("worker stopped (SIGTERM): its slots have owners", since, fleet.settled)
    worker.process.wait(60)
    fleet.add()


def child_frozen(fleet, key):
    pid = fleet.holder_and_next(key)
    since = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    fleet.measure("holder frozen: the next in line runs", since, lambda: fleet.held(key, 2))
    since = time.monotonic()
    os.kill(pid, signal.SIGCONT)
    fleet.measure("holder frozen: it knows when it wakes", since, lambda: fleet.lost(key, 1))


def key_deleted(fleet, key):
    fleet.holder_and_next(key)
    since = time.monotonic()
    fleet.arbiter.cli("DEL", f"atom:recovery:lock:recovery.hold:{key}")
    fleet.measure("key deleted: its holder knows", since, lambda: fleet.lost(key, 1))


def goes_on(fleet, key, what, since):
    fleet.hold(f"{key}-new", 1, fleet.workers[1])
    fleet.measure(f"{what}: a new lock is granted", since, lambda: fleet.held(f"{key}-new", 1))
    fleet.end(f"{key}-new")
    # What they were told before the fault is not what is meant.
    wait_until(lambda: not fleet.settled(), 30, "the loss is noticed")
    fleet.measure(f"{what}: all slots have owners", since, fleet.settled)
    fleet.measure(f"{what}: all ticks are sent", since, lambda: fleet.sent_since(since))


def arbiter_emptied(fleet, key):
    fleet.hold(key, 1, fleet.workers[0])
    wait_until(lambda: fleet.held(key, 1), 60, f"{key} is held")
    fleet.arbiter.kill()
    fleet.arbiter.restart(data=False)
    goes_on(fleet, key, "arbiter restarted empty", time.monotonic())
    print(f"           its holder has {'lost' if fleet.lost(key, 1) else 'kept'} its lease")


def arbiter_away(fleet, key):
    fleet.arbiter.kill()
    time.sleep(OUTAGE)
    fleet.arbiter.start()
    goes_on(fleet, key, f"arbiter back after {OUTAGE:g} s", time.monotonic())


SCENES = [
    child_killed,
    worker_killed,
    worker_stopped,
    child_frozen,
    key_deleted,
    arbiter_emptied,
    arbiter_away,
]


def main():
    global DIRECTORY  # noqa: PLW0603 - of the process
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    DIRECTORY = Path(tempfile.mkdtemp(prefix="recovery-"))
    (DIRECTORY / "journal").touch()
    with Server(persistent=True) as arbiter, Server() as broker:
        fleet = Fleet(arbiter, broker)
        try:
            for _ in range(3):
                fleet.add()
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}", flush=True)
                for scene in SCENES:
                    fleet.at_rest()
                    key = f"{scene.__name__}-{number}"
                    scene(fleet, key)
                    fleet.end(key)
            server = arbiter.cli("INFO", "server").split("redis_version:")[1].split()[0]
        finally:
            for worker in fleet.workers:
                worker.kill()
    print(
        f"\nserver {server}, Python {platform.python_version()}, {os.cpu_count()} cores;"
        f" median (least to most) of {rounds}"
    )
    for what, seconds in fleet.measured.items():
        print(
            f"{what:50} {statistics.median(seconds):6.2f} s"
            f"  ({min(seconds):.2f} to {max(seconds):.2f})"
        )
    for line in sorted({line for log in DIRECTORY.glob("*.log") for line in warnings(log)}):
        print(line)
    shutil.rmtree(DIRECTORY)


def warnings(log):
    """What the workers warned of, without time and process."""
    for line in log.read_text(errors="replace").splitlines():
        if "WARNING/" in line:
            yield line.partition("] ")[2]


if __name__ == "__main__":
    main()

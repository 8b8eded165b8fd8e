"""
What becomes of a key in the cases of docs/task-life.md, here and in other packages.

    python benchmarks/correctness.py                    # all packages, a few minutes each
    python benchmarks/correctness.py celery-once        # this one

Correctness, not speed: each cell is what was seen on real workers and servers, with a mark where it
is not what the row asks for. The other packages are installed into build/peers, a virtual
environment of its own, at the first run. They are given the same expiry as our ttl, so that their
keys, which nobody renews, are free again in these minutes at all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "peers"
PACKAGES = ["celery-atomicity", "celery-singleton", "celery-once", "celery-heimdall", "recipe"]
MODULES = ["celery_singleton", "celery_once", "celery_heimdall", "celery_atomicity"]

SOON = 2.5  # seconds; less than half of the expiry
PATIENCE = 20.0


def main():
    if not all(map(importlib.util.find_spec, MODULES)):
        return move()
    if "PEER" in os.environ:
        return json.dump(measure(), sys.stdout)
    packages = sys.argv[1:] or PACKAGES
    results = {}
    for package in packages:
        print(f"{package} ...", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, __file__],
            env={**os.environ, "PEER": package},
            stdout=subprocess.PIPE,
            check=True,
        )
        results[package] = json.loads(done.stdout)
    print(f"| | {' | '.join(packages)} |\n|{' --- |' * (len(packages) + 1)}")
    for name, _ in ROWS:
        cells = (results[package][name] for package in packages)
        print(f"| {name} | {' | '.join(('' if right else '**no:** ') + t for right, t in cells)} |")
    return None


def move():
    """Go on in an environment that has the other packages."""
    python = HOME / "bin" / "python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True)
        subprocess.run([*pip, "--editable", ROOT, "--group", "peers"], check=True, cwd=ROOT)
    os.execv(python, [python, *sys.argv])


class World:
    """Two workers, their broker, and the server of the locks."""

    def __init__(self, broker, locks):
        from celery_atomicity.testing import wait_until

        os.environ.update(BROKER=broker.url, LOCKS=locks.url)
        import peers

        self.app, self.task, self.expiry = peers.app, peers.task, peers.EXPIRY
        self.broker, self.locks, self.until = broker, locks, wait_until
        self.journal_name = peers.JOURNAL
        self.workers = [self.spawn(), self.spawn()]
        self.wait_for_workers()

    def spawn(self):
        command = (
            f"-A peers worker -c 4 -l ERROR --without-mingle --without-gossip -n {time.time()}@x"
        )
        return subprocess.Popen(
            [sys.executable, "-m", "celery", *command.split()],
            cwd=Path(__file__).parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for_workers(self):
        def answer():
            return len(self.app.control.ping(timeout=0.5, limit=len(self.workers)))

        self.until(lambda: answer() >= len(self.workers), 30, "the workers answer")

    def close(self):
        for worker in self.workers:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()

    def publish(self, key, seconds=0.05, retries=0, **options):
        """The result, or what the caller gets instead."""
        try:
            return self.task.apply_async((key, seconds, retries), **options)
        except Exception as error:  # noqa: BLE001 - whatever a package has for its caller
            return error

    def entries(self, key, event=None):
        entries = map(json.loads, self.broker.cli("LRANGE", self.journal_name, "0", "-1"))
        return [e for e in entries if e["key"] == key and event in (None, e["event"])]

    def starts(self, key, count=1, timeout=PATIENCE):
        """The starts of *key*, once there are so many, or *timeout* is over."""
        with contextlib.suppress(AssertionError):
            self.until(lambda: len(self.entries(key, "start")) >= count, timeout)
        return self.entries(key, "start")

    def running(self, key, seconds=30.0, **options):
        """A result and its start."""
        result = self.publish(key, seconds, **options)
        if isinstance(result, Exception):
            raise result
        return result, self.starts(key)[-1]

    def free_after(self, key, seconds=0.05):
        """Seconds until a new call of *key* runs, repeated where it was refused; None: too long."""
        began = time.monotonic()
        known = {entry["id"] for entry in self.entries(key)}
        fresh = None
        while time.monotonic() - began < PATIENCE:
            if fresh is None or fresh.ready():
                result = self.publish(key, seconds)
                old = isinstance(result, Exception) or result.id in known
                fresh = None if old else result
            if {entry["id"] for entry in self.entries(key, "start")} - known:
                return time.monotonic() - began
            time.sleep(0.1)
        return None

    def overlap(self, key, apart_from=()):
        """Whether two runs of *key* were under way at once."""
        under_way = set()
        for entry in self.entries(key):
            if entry["id"] in apart_from:
                continue
            if entry["event"] == "start":
                if under_way:
                    return True
                under_way.add(entry["pid"])
            else:
                under_way.discard(entry["pid"])
        return False

    def state(self, result, timeout=PATIENCE):
        try:
            self.until(result.ready, timeout)
        except AssertionError:
            return "no result"
        return result.state


def freed(world, key, within=SOON):
    seconds = world.free_after(key)
    if seconds is None:
        return False, f"not free after {PATIENCE:.0f} s"
    return seconds <= within, "free at once" if seconds < SOON else f"free after {seconds:.0f} s"


def one_at_a_time(world, key, right="one at a time", **options):
    overlap = world.overlap(key, **options)
    return not overlap, "two at once" if overlap else right


def retries(world, key):
    """Five tasks, since it is a race in some packages: the one that ran the fewest times counts."""
    results = {f"{key}-{n}": world.publish(f"{key}-{n}", retries=3) for n in range(5)}
    fewest = min(results, key=lambda each: len(world.starts(each, 4, timeout=4)))
    runs = len(world.entries(fewest, "start"))
    return runs == 4, f"{runs} of 4 runs, {world.state(results[fewest], timeout=4)}"


def child_killed(world, key):
    _, start = world.running(key)
    os.kill(start["pid"], signal.SIGKILL)
    return freed(world, key)


def worker_killed(world, key):
    _, start = world.running(key)
    parent = int(Path(f"/proc/{start['pid']}/stat").read_text().split()[3])
    [dead] = [worker for worker in world.workers if worker.pid == parent]
    os.killpg(parent, signal.SIGKILL)
    # The broker has to know as well: it would hand the next message to who is no more.
    dead.wait()
    time.sleep(0.5)
    outcome = freed(world, key, within=world.expiry + SOON)
    world.workers.remove(dead)
    world.workers.append(world.spawn())
    world.wait_for_workers()
    return outcome


def hard_limit(world, key):
    result, _ = world.running(key, time_limit=2)
    world.state(result)
    return freed(world, key)


def soft_limit(world, key):
    result, _ = world.running(key, soft_time_limit=2)
    world.state(result)
    return freed(world, key)


def revoked_before(world, key):
    result = world.publish(key, countdown=5)
    world.app.control.revoke(result.id)
    return freed(world, key)


def revoked_running(world, key):
    result, _ = world.running(key)
    world.app.control.revoke(result.id, terminate=True, signal="SIGKILL")
    world.state(result)
    return freed(world, key)


def outlives_its_expiry(world, key):
    world.running(key, 2.0 * world.expiry)
    world.free_after(key)
    return one_at_a_time(world, key)


def stopped(world, key):
    """The next one runs meanwhile; when the first goes on, it is told, and takes nothing away."""
    first, start = world.running(key, 1.0)
    os.kill(start["pid"], signal.SIGSTOP)
    world.free_after(key, seconds=5.0)
    os.kill(start["pid"], signal.SIGCONT)
    told = world.state(first) == "FAILURE"
    time.sleep(0.5)  # what the first one's end does to the key comes after its result
    world.publish(key)
    time.sleep(1.0)
    apart, text = one_at_a_time(world, key, "the next one undisturbed", apart_from={first.id})
    return told and apart, ("is told, " if told else "never knows, ") + text


def deleted(world, key):
    first, _ = world.running(key, 3.0)
    for name in world.locks.cli("KEYS", f"*lock*{key}") or world.locks.cli("KEYS", "*"):
        world.locks.cli("DEL", name)
    told = world.state(first) == "FAILURE"
    return told, "is told" if told else "never knows"


def restarted(world, key):
    first, _ = world.running(key, 3.0)
    world.locks.restart()
    world.free_after(key)
    world.state(first)
    return one_at_a_time(world, key)


def down_at_publish(world, key):
    world.locks.stop()
    result = world.publish(key)
    time.sleep(3.0)
    world.locks.start()
    if isinstance(result, Exception):
        return False, f"the caller gets {type(result).__name__}"
    state = world.state(result)
    return state == "SUCCESS", f"published, {state}"


def down_at_start(world, key):
    result = world.publish(key, countdown=1)
    world.locks.stop()
    time.sleep(2.0)
    world.locks.start()
    runs, state = len(world.starts(key)), world.state(result)
    return runs == 1 and state == "SUCCESS", f"{runs} run{'s' * (runs != 1)}, {state}"


def down_in_mid_run(world, key):
    result, _ = world.running(key, 1.0)
    world.locks.stop()
    state = world.state(result)
    world.locks.start()
    return state == "SUCCESS", state


def applied(world, key):
    world.running(key, 3.0)
    call = threading.Thread(target=world.task.apply, args=((key,),))
    call.start()
    time.sleep(0.5)
    world.publish(key)
    call.join(PATIENCE)
    return one_at_a_time(world, key)


def eager(world, key):
    world.running(key, 2.0)
    world.app.conf.task_always_eager = True
    world.publish(key)
    world.app.conf.task_always_eager = False
    return one_at_a_time(world, key)


def sent_by_name(world, key):
    results = [world.app.send_task(world.task.name, (key, 1.0)) for _ in range(2)]
    for result in results:
        world.state(result)
    return one_at_a_time(world, key)


def redelivered(world, key):
    result, _ = world.running(key, 2.0)
    world.app.send_task(world.task.name, (key, 0.1), task_id=result.id)
    world.state(result)
    time.sleep(1.0)
    return one_at_a_time(world, key)


ROWS = [
    ("`self.retry`, three times: four runs", retries),
    ("child killed: key free at once", child_killed),
    ("worker killed: key free after the expiry", worker_killed),
    ("hard time limit: key free at once", hard_limit),
    ("soft time limit: key free at once", soft_limit),
    ("revoked before it runs: key free at once", revoked_before),
    ("revoked with terminate: key free at once", revoked_running),
    ("runs longer than the expiry: one at a time", outlives_its_expiry),
    ("holder stopped for longer than the expiry: told, next one undisturbed", stopped),
    ("key deleted by hand: the holder is told", deleted),
    ("locks' server restarts empty in mid-run: one at a time", restarted),
    ("locks' server down at publish: runs later", down_at_publish),
    ("locks' server down at the start: runs once", down_at_start),
    ("locks' server down at the end: result kept", down_in_mid_run),
    ("`.apply()` beside a running twin: one at a time", applied),
    ("eager beside a running twin: one at a time", eager),
    ("`send_task` by name, twice: one at a time", sent_by_name),
    ("message delivered twice: one at a time", redelivered),
]


def measure():
    from celery_atomicity.testing import Server

    results = {}
    with Server() as broker, Server() as locks:
        world = World(broker, locks)
        try:
            for number, (name, row) in enumerate(ROWS):
                try:
                    results[name] = row(world, f"key{number:02}")
                except Exception as error:  # noqa: BLE001 - it is a result, too
                    results[name] = (False, f"could not be seen: {error!r}")
                print(f"  {name}: {results[name]}", file=sys.stderr, flush=True)
                world.locks.start()
        finally:
            world.close()
    return results


if __name__ == "__main__":
    main()

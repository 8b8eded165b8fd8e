"""
Locks that somebody waits for: handing one over, eight processes on one key, and waiting itself.

    python -m benchmarks.contention        # peers: pip install --group bench

The basis is the raw first-come grant: one script that takes or stands in line, one that grants to
the next and rings it, over raw sockets. It forgives nothing (nobody's death is noticed) and so is
the least that waiting in line can cost. Every process has clients of its own.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import statistics
import time
from contextlib import contextmanager, suppress
from functools import partial

from benchmarks import contenders, report, targets
from benchmarks.contenders import OURS, RAW
from benchmarks.wire import APART, Wire, pin, unpin
from celery_atomicity.connection.resp import pack
from celery_atomicity.testing import Server

TOKEN = "raw BLPOP token"
PROCESSES = 8
HOLD, ELSEWHERE = 0.001, 0.005  # seconds
# Until a waiter that was told to wait surely stands in line; seconds.
LINED_UP = 0.02

fork = multiprocessing.get_context("fork")


def measure(run):
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with Server() as server:
        pin(APART, server)
        try:
            handovers(run, server)
        finally:
            unpin(server)
        crowd(run, server)
        waiting(run, server)


@contextmanager
def children(work, *arguments, count=1):
    """So many children that run ``work(connection, *arguments)``; our ends of their connections."""
    made = []
    for _ in range(count):
        ours, its = fork.Pipe()
        child = fork.Process(target=_guarded, args=(work, its, *arguments), daemon=True)
        child.start()
        its.close()
        made.append((child, ours))
    try:
        yield made
    finally:
        for child, ours in made:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            child.join()
            ours.close()


def _guarded(work, connection, *arguments):
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        work(connection, *arguments)


def all_of(section):
    return {RAW: contenders.raw_grant, OURS: contenders.ours, **contenders.present(section)}


# -- handing over -------------------------------------------------------------------------------


def handovers(run, server):
    section = run.section("Let go to held by the next in line")
    made = {TOKEN: raw_token} | all_of(section)
    rounds = int(run.times(100, 15))
    samples = {name: [] for name in made}
    with _waiters(made, server) as waiters:
        holders = {name: make([server], f"handover {name}") for name, make in made.items()}
        for number in range(rounds + 3):
            for name, (take, let_go) in holders.items():
                token = take()
                waiters[name].send(None)
                time.sleep(LINED_UP)
                began = time.perf_counter()
                let_go(token)
                held = waiters[name].recv()
                if number >= 3:
                    samples[name].append((held - began) * 1e6)
    section.add_samples(samples, basis=TOKEN, targets={OURS: targets.HANDOVER})


@contextmanager
def _waiters(made, server):
    """A process for each case that waits when it is told to, and tells when it held."""

    # Made before any thread is, so that the children are forked of a process with one.
    found, stack = {}, []
    try:
        for name, make in made.items():
            one = children(_wait_when_told, make, server, f"handover {name}")
            [(_, found[name])] = one.__enter__()
            stack.append(one)
        yield found
    finally:
        for one in reversed(stack):
            one.__exit__(None, None, None)


def _wait_when_told(connection, make, server, key):
    take, let_go = make([server], key)
    while True:
        connection.recv()
        token = take()
        held = time.perf_counter()  # one clock for all processes of a machine
        if make is not raw_token:
            let_go(token)
        connection.send(held)


def raw_token(servers, key):
    """A token in a list: who takes waits for it; letting go pushes it."""
    wire = Wire(servers[0])
    push, pop = pack(["RPUSH", key, 1]), pack(["BLPOP", key, 0])
    if fork.current_process().name == "MainProcess":
        return (lambda: None), lambda _: wire.ask(push)
    return lambda: wire.ask(pop, 5), lambda _: None


# -- eight on one key ---------------------------------------------------------------------------


def crowd(run, server):
    speed = run.section(
        f"{PROCESSES} processes on one key, 1 ms each, 5 ms elsewhere: locks a second"
    )
    made = all_of(speed)
    found = {}
    for name, make in made.items():
        run.progress(f"{speed.title}: {name}")
        found[name] = _crowd(server, make, f"crowd {name}", run.times(5.0, 1.0))
    seconds = run.times(5.0, 1.0)
    for name, waits in found.items():
        grants = sum(map(len, waits))
        speed.add(
            name,
            grants / seconds,
            unit="/s",
            basis=RAW,
            target=targets.TURNS if name == OURS else None,
        )
    fair = run.results.section(
        "the same: turns of the luckiest process over those of the unluckiest"
    )
    for name, waits in found.items():
        counts = [len(each) for each in waits]
        fair.add(
            name,
            max(counts) / max(1, min(counts)),
            unit="times",
            target=targets.FAIRNESS if name == OURS else None,
        )
    wait = run.results.section("the same: how long one waits")
    for name, waits in found.items():
        times = [one * 1000 for each in waits for one in each]
        wait.add(name, statistics.median(times), p99=report.late(times), unit="ms")
        wait.add(
            f"{name}, longest",
            max(times),
            unit="ms",
            basis=name,
            target=targets.LONGEST if name == OURS else None,
        )


def _crowd(server, make, key, seconds):
    """The waits of each process, in seconds."""
    start = fork.Barrier(PROCESSES)
    with children(
        partial(_use, start=start, seconds=seconds), make, server, key, count=PROCESSES
    ) as made:
        return [connection.recv() for _, connection in made]


def _use(connection, make, server, key, *, start, seconds):
    take, let_go = make([server], key)
    let_go(take())
    start.wait()
    end = time.perf_counter() + seconds
    waits = []
    while (began := time.perf_counter()) < end:
        token = take()
        got = time.perf_counter()
        if got < end:
            waits.append(got - began)
        time.sleep(HOLD)
        let_go(token)
        time.sleep(ELSEWHERE)
    connection.send(waits)
    connection.recv()  # nobody leaves before all are through


# -- waiting ------------------------------------------------------------------------------------


def waiting(run, server):
    section = run.section("Waiting: commands a second and waiter")
    made = all_of(section)
    section.notes.append(
        f"{PROCESSES} processes wait for one key whose holder is frozen; counted by MONITOR, "
        "without those that run inside scripts"
    )
    for name, make in made.items():
        run.progress(f"{section.title}: {name}")
        commands = _waiting(server, make, f"waiting {name}", run.times(4.0, 1.0))
        section.add(name, commands, unit="/s", target=targets.WAITING if name == OURS else None)


def _waiting(server, make, key, seconds):
    with children(_hold, make, server, key) as [(holder, held)]:
        held.recv()
        os.kill(holder.pid, signal.SIGSTOP)  # so that all that is counted is the waiters'
        with children(_wait, make, server, key, count=PROCESSES) as made:
            for _, connection in made:
                connection.recv()
            time.sleep(1.0)
            return monitored(server, seconds) / seconds / PROCESSES


def _hold(connection, make, server, key):
    take, _ = make([server], key)
    take()
    connection.send(None)
    signal.pause()


def _wait(connection, make, server, key):
    take, _ = make([server], key)
    connection.send(None)
    take()


def monitored(server, seconds):
    """How many commands clients send to *server* in that time."""
    wire = Wire(server)
    wire.say("MONITOR")
    wire.socket.settimeout(0.05)
    seen, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(TimeoutError):
            seen += wire.socket.recv(1 << 20)
    wire.socket.close()
    return sum(line.startswith(b"+") and b" lua]" not in line for line in seen.splitlines())


if __name__ == "__main__":
    report.main(measure, __doc__)

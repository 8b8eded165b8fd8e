"""What has to be true of the fleet, as functions of what was observed; each answers a Fact."""

import itertools
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

# Seconds by which the moment of a call may look shifted: the scheduler's share.
JITTER = 0.05


@dataclass(frozen=True)
class Fact:
    """A claim, what it was checked on, and what speaks against it; nothing if it is true."""

    claim: str
    checked: str
    against: tuple[str, ...] = ()


def one_owner(moments, total):
    """*moments*: (number, worker, owned), where owned is (i, n) or None."""
    owners = defaultdict(dict)
    for number, worker, owned in moments:
        if owned is not None:
            owners[number][worker] = owned
    against = []
    for number, owned in owners.items():
        claimed = {}
        for worker, (i, n) in owned.items():
            for slot in range(i, total, n):
                other = claimed.setdefault(slot, worker)
                if other != worker:
                    against.append(f"moment {number}: {other} and {worker} own slot {slot}")
    compared = sum(len(owned) > 1 for owned in owners.values())
    if not compared:
        against.append("no moment was seen at which two workers owned anything")
    return Fact("no slot ever had two owners", f"{compared:,} moments", tuple(against))


def one_sync(entries, killed_at):
    """*killed_at*: worker -> when; a run that it did not end, ended then."""
    runs, against = _syncs(entries, killed_at)
    for account, each in runs.items():
        for (first, end), (second, _) in itertools.pairwise(each):
            if second["at"] < end:
                against.append(f"account {account}: two runs at once, {end - second['at']:.3f} s")
            if second["fence"] <= first["fence"]:
                against.append(f"account {account}: fence {second['fence']} came later and is less")
    count = sum(map(len, runs.values()))
    if not count:
        against.append("no account was synced")
    checked = f"{count:,} syncs of {len(runs)} accounts"
    return Fact("no account was synced twice at once", checked, tuple(against))


def _syncs(entries, killed_at):
    """By account its runs, in order: (start, when it ended); and what is wrong with them."""
    begun, runs, against = {}, defaultdict(list), []
    for entry in sorted(entries, key=lambda entry: entry["at"]):
        run = (entry["worker"], entry["task"], entry.get("fence"))
        if entry["event"] == "sync starts":
            begun[run] = entry
        elif entry["event"] == "sync ends":
            runs[entry["key"]].append((begun.pop(run), entry["at"]))
    for entry in begun.values():
        if entry["worker"] in killed_at:
            runs[entry["key"]].append((entry, killed_at[entry["worker"]]))
        else:
            against.append(f"account {entry['key']}: a run on {entry['worker']} has no end")
    for each in runs.values():
        each.sort(key=lambda run: run[0]["at"])
    return runs, against


def undone(entries, asked):
    """*asked*: syncs and calls by task id (what, when); what of them has not come to an end."""
    done = {entry["task"] for entry in entries if entry["event"] in ("sync ends", "call")}
    return {task: what for task, (what, _at) in asked.items() if task not in done}


def all_done(entries, asked, dropped):
    """
    Each is done, also what the dead had begun.

    *dropped*: ids of tasks that no worker ever received; see `Fleet.dropped`.
    """
    left = undone(entries, asked)
    against = [f"{what} was not done: {task}" for task, what in left.items() if task not in dropped]
    return Fact(
        "all that was asked for was done",
        f"{len(asked):,} tasks{_but(len(left.keys() & dropped), 'dropped by the broker')}",
        tuple(against),
    )


def busiest(calls, seconds):
    """The most calls in any window of so many *seconds*."""
    calls, first, most = sorted(calls), 0, 0
    for last, call in enumerate(calls):
        while call - calls[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def rate_kept(calls, rate, burst):
    """*calls*: when the partner was called. In every second at most *rate* + *burst* were."""
    most = busiest(calls, 1.0 - JITTER)
    against = []
    if most > rate + burst:
        against.append(f"{most} calls in one second")
    if not calls:
        against.append("the partner was never called")
    return Fact(
        f"at most {rate}/s and {burst} at once reached the partner",
        f"{len(calls):,} calls, at most {busiest(calls, 1.0)} in a second",
        tuple(against),
    )


def missing_ticks(entries, total, period, until):
    """
    What the *total* slots have not run for, of all that was due up to *until*: (slot, due).

    Instants are microseconds since the epoch; None: the slot has not run at all.
    """
    missing = []
    for slot, runs in _sweeps(entries, total).items():
        if not runs:
            missing.append((slot, None))
            continue
        expected = range(min(runs), until + 1, period)
        missing += [(slot, due) for due in expected if due not in runs]
    return missing


def one_sweep(entries, total, period, until, *, killed, dropped):
    """
    Every slot ran once at each of its instants up to *until*.

    A run that its worker was *killed* in, before it could be acknowledged, is run again by another.
    *dropped*: ticks (slot, due) that were sent and that no worker ever received.
    """
    missing = missing_ticks(entries, total, period, until)
    against = [
        f"slot {slot} has not run{'' if due is None else f' for {due}'}"
        for slot, due in missing
        if (slot, due) not in dropped
    ]
    count, again = 0, 0
    for slot, runs in _sweeps(entries, total).items():
        for due, each in runs.items():
            count += 1
            again += len(each) - 1
            living = sum(run["worker"] not in killed for run in each)
            if len({run["task"] for run in each}) > 1 or living > 1 or len(each) - living > 1:
                against.append(f"slot {slot} ran {len(each)} times for {due}")
    return Fact(
        f"each of {total} slots was swept once a tick",
        f"{count:,} ticks{_but(again, 'begun anew after the kill')}"
        f"{_but(len(dropped & set(missing)), 'dropped by the broker')}",
        tuple(against),
    )


def instant(due):
    """*due*, ISO 8601, in microseconds since the epoch."""
    return round(datetime.fromisoformat(due).timestamp() * 1_000_000)


def _sweeps(entries, total):
    """The runs of each slot by the instant they were due."""
    sweeps = {slot: defaultdict(list) for slot in range(total)}
    for entry in entries:
        if entry["event"] == "sweep":
            sweeps[entry["key"]][instant(entry["due"])].append(entry)
    return sweeps


def _but(count, what):
    return f", {count} {what}" if count else ""

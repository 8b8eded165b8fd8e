"""The scripts of locks on real servers, held to the models that the simulation runs."""

import random

import redis
from simulation.lock_store import SCRIPTS, Store
from support.secret import PASSWORD

from celery_atomicity import keys
from celery_atomicity.connection import Script
from celery_atomicity.testing.wire import packed

GROUP = "g"
SOURCES = {
    # Virtual time: what the clock says stands in a key.
    name: Script(name).source.replace("redis.call('TIME')", "redis.call('HMGET', 'now', 's', 'u')")
    for name in SCRIPTS
}
START = 1_700_000_000_000_000
FENCE = keys.fence_key(GROUP)
IDS = [f"{number:032x}" for number in range(4)]
NAMES = ("a", "b")


def places(names):
    return list(keys.lock_places(GROUP, names))


class Twins:
    """
    A server and a model of it, asked the same at the same virtual time.

    Attributes:
        rung: What the model has told those who listen.
    """

    def __init__(self, server, channels=()):
        self.channels, self.rung = channels, []
        self.client = redis.Redis.from_url(server.url, decode_responses=True)
        self.store = Store()
        self.now = START
        self.pass_time(0)

    def pass_time(self, ms):
        """*ms* go by; where they are negative, the clock is set back, and what expires later."""
        self.now += ms * 1000
        seconds, rest = divmod(self.now, 1_000_000)
        with self.client.pipeline() as pipe:
            pipe.hset("now", mapping={"s": seconds, "u": rest})
            for key, at in self.store.expires.items():
                # A time that has passed deletes it.
                pipe.pexpire(key, int(at - self.now // 1000))
            pipe.execute()
        self.store.expire(self.now // 1000)

    def ask(self, name, names, arguments):
        real = self.client.eval(SOURCES[name], len(names), *names, *arguments)
        model = SCRIPTS[name](self.store, self.now, names, list(arguments), self.publish)
        return real, model

    def publish(self, channel, said):
        if channel not in self.channels:
            return 0
        self.rung.append(said)
        return 1

    def data(self):
        """What both hold, in the same form."""
        found = sorted(self.client.keys("atom:*"))
        with self.client.pipeline() as pipe:
            for key in found:
                if key.endswith(":seen") or key == keys.MARKER:
                    pipe.hgetall(key)
                elif ":line:" in key:
                    pipe.zrange(key, 0, -1, withscores=True)
                else:
                    pipe.get(key)
            values = pipe.execute()
        values = [dict(each) if isinstance(each, list) else each for each in values]
        return dict(zip(found, values, strict=True)), self.store.data

    def lifetimes(self):
        """How long each key has, in ms, on both sides."""
        with self.client.pipeline() as pipe:
            for key in self.store.expires:
                pipe.pttl(key)
            real = pipe.execute()
        return zip(real, (at - self.now // 1000 for at in self.store.expires.values()), strict=True)


def random_call(chance, twins):
    names = chance.sample(NAMES, chance.randint(1, 2))
    lease, number = chance.choice(IDS), chance.randint(1, 3)
    value = f"{lease}.{number} somebody, since then"
    ttl = chance.choice((3_000, 20_000))
    kind = chance.choices(list(SCRIPTS), (6, 4, 4, 1, 1))[0]
    if kind == "acquire":
        ring = chance.choice(("", "mail", "mail", "deaf"))
        more = ([], [0], [1], [1], [1]) if len(names) == 1 else ([], [0])
        arguments = [lease, value, ttl, 2_000, ring, 4_000]
        return kind, places(names), [*arguments, *chance.choice(more)]
    if kind == "release":
        arguments = [lease, chance.choice((0, 0, 0, 5_000)), 4_000]
        more = ([], ["", ""], [number, ""], [number, "mail"], [number, "-"])
        return kind, places(names), [*arguments, *chance.choice(more)]
    if kind == "renew":
        run = chance.choice(("", "run-1", "run-2"))
        locks = keys.locks_of(places(names))
        return (
            kind,
            [keys.MARKER, *locks],
            [lease, value, ttl, 2_000, run, chance.choice((0, 0, 1))],
        )
    if kind == "raise":
        last = int(twins.store.data.get(FENCE, START))
        return kind, [FENCE], [last + chance.randint(-2, 5)]
    run = chance.choice(("run-1", "run-1", "run-2", "run-3"))
    return kind, [keys.MARKER], [run, chance.choice((0, 1_000, 100_000)), 2_000]


def close(real, model):
    """Alike, but for the milliseconds that passed between the two."""
    if isinstance(model, list) and len(model) == 4:
        return real[:2] + real[3:] == model[:2] + model[3:] and abs(real[2] - model[2]) < 400
    return real == model


def compare(server, seed, calls):
    """Ask both at random; what they answered, and what those who listen were told."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client, client.pubsub() as ear:
        ear.subscribe("mail")
        assert ear.get_message(timeout=5)["type"] == "subscribe"
        return compare_heard(server, seed, calls, ear)


def compare_heard(server, seed, calls, ear):
    chance, twins = random.Random(seed), Twins(server, ["mail"])
    verdicts = set()
    for _ in range(calls):
        name, names, arguments = random_call(chance, twins)

        real, model = twins.ask(name, names, arguments)

        assert close(real, model), (name, names, arguments, real, model)
        held, modelled = twins.data()
        assert held == modelled, (name, names, arguments)
        verdicts.add((name, model[0] if isinstance(model, list) else model))
        rung, twins.rung = twins.rung, []
        for said in rung:
            assert ear.get_message(timeout=5)["data"] == said
            verdicts.add("handed over" if " " in said else "rung")
        for left, modelled in twins.lifetimes():
            assert abs(left - modelled) < 400
        # In steps that keep clear of what is about to run out.
        twins.pass_time(chance.choice((0, 0, 1_500, 1_500, 4_500, 9_000, -1_500)))
    twins.client.close()
    return verdicts


def test_scripts_and_models_answer_alike(servers):
    verdicts = set().union(*(compare(servers(), seed, 1000) for seed in range(3)))

    assert {("acquire", number) for number in (0, 1, 2, 3)} <= verdicts
    assert {("renew", number) for number in (-1, 0, 1)} <= verdicts
    assert {("raise", 0), ("raise", 1), ("release", 0), ("release", 1)} <= verdicts
    assert {"rung", "handed over"} <= verdicts


def test_on_every_server_that_is_here(every_server):
    compare(every_server, 99, 150)


def test_who_listens_is_rung_and_who_does_not_is_passed_over(server):
    # LOCK-04
    import socket

    twins = Twins(server)
    heard = []
    twins.publish = lambda channel, ticket: heard.append(ticket) or int(channel == "ear")
    names = places("a")

    def ask(lease, ring):
        return twins.ask("acquire", names, [lease, f"{lease}.1 me", 20_000, 0, ring, 4_000])

    with socket.create_connection(("127.0.0.1", server.port)) as listener:
        listener.sendall(packed("AUTH", PASSWORD))
        assert listener.recv(1000) == b"+OK\r\n"
        listener.sendall(packed("SUBSCRIBE", "ear"))
        listener.recv(1000)
        ask(IDS[0], "")
        ask(IDS[1], "deaf")
        twins.pass_time(1)
        ask(IDS[2], "ear")
        real, model = twins.ask("release", places("a"), [IDS[0], 0, 4_000, "", ""])
        pushed = listener.recv(1000)

    assert real == model == 1
    assert heard == [IDS[1], IDS[2]]
    assert IDS[2].encode() in pushed
    assert twins.data()[0] == twins.data()[1]
    assert ask(IDS[3], "")[0][0] == 2  # the one that was rung comes first
    assert ask(IDS[2], "")[0][0] == 1
    twins.client.close()

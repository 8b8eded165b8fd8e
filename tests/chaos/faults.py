"""The faults: what each kind does, to whom and for how long."""

import signal
from contextlib import suppress

from chaos.journal import now
from chaos.nodes import WORKERS

LEAST, MOST = 3, 7  # workers

#: Seconds after which one that was asked to end is killed: some warm shutdowns do not end.
TOO_LONG = 15.0

KINDS = (
    *("kill worker", "kill main process", "kill child", "freeze worker", "freeze main process"),
    *("freeze child", "stop worker", "kill beat", "freeze beat", "fell beat in mid-send"),
    *("restart server empty", "restart server with data", "flush server", "freeze server"),
    *("fill server", "cut", "hang", "slow", "lossy", "restart broker", "deploy", "scale up"),
    *("scale down",),
)


class Faults:
    """
    Begins faults on *stage*.

    Args:
        later: Given seconds and a function, calls it when they have passed.
    """

    def __init__(self, stage, later):
        self.stage = stage
        self.later = later
        self._busy = set()

    def begin(self, kind, number, chance):
        """Begin a fault of that *kind*; nothing, if there is nobody whom it could befall."""
        getattr(self, "_" + kind.replace(" ", "_").replace("-", "_"))(kind, number, chance)

    def _note(self, kind, number, target, **facts):
        self.stage.journal.note("fault", n=number, kind=kind, target=str(target), **facts)

    def _healed(self, number):
        self.stage.journal.note("healed", n=number)

    def _until(self, number, seconds, busy, undo):
        """Heal the fault of that *number* after so long; until then nothing else befalls *busy*."""
        self._busy.add(busy)

        def heal():
            self._busy.discard(busy)
            undo()
            self._healed(number)

        self.later(seconds, heal)

    # -- of nodes -------------------------------------------------------------------------------

    def _nodes(self, *, beats=False):
        return [
            node
            for node in self.stage.nodes
            if node.is_beat == beats and node.ready and not node.expected and not node.frozen
        ]

    def _one(self, chance, *, beats=False, kinds=None):
        """One of them; of those that hold a key, if there are any, most of the time."""
        found = [node for node in self._nodes(beats=beats) if not kinds or node.kind in kinds]
        at_work = self.stage.holders()
        holders = [node for node in found if node in at_work]
        if holders and chance.random() < 0.7:
            return chance.choice(holders)
        return chance.choice(found) if found else None

    def _kill(self, kind, number, chance, node, *, group):
        if node is None:
            return
        node.kill(group=group)
        self._note(kind, number, node)
        self.later(chance.uniform(0, 2), lambda: self.stage.spawn(node.kind))

    def _kill_worker(self, kind, number, chance):
        self._kill(kind, number, chance, self._one(chance), group=True)

    def _kill_main_process(self, kind, number, chance):
        node = self._one(chance, kinds=("prefork", "embedded"))
        self._kill(kind, number, chance, node, group=False)

    def _kill_beat(self, kind, number, chance):
        self._kill(kind, number, chance, self._one(chance, beats=True), group=True)

    def _kill_child(self, kind, number, chance):
        node = self._one(chance, kinds=("prefork", "embedded"))
        children = node.children() if node else []
        if children:
            child = chance.choice(children)
            self._note(kind, number, f"{child.pid} of {node}")
            with suppress(Exception):
                child.kill()

    def _freeze(self, kind, number, chance, node, *, group=True):
        if node is None:
            return
        node.freeze(group=group)
        self._note(kind, number, node)
        self._until(number, self._moment(chance), node.name, node.thaw)

    def _moment(self, chance):
        """Shorter than anything lasts, or longer than a lease and an assignment."""
        short, long = chance.uniform(0.05, 0.6), chance.uniform(1.1, 2.5)
        return chance.choice((short, long, long)) * self.stage.ttl

    def _freeze_worker(self, kind, number, chance):
        self._freeze(kind, number, chance, self._one(chance))

    def _freeze_main_process(self, kind, number, chance):
        node = self._one(chance, kinds=("prefork", "embedded"))
        self._freeze(kind, number, chance, node, group=False)

    def _freeze_beat(self, kind, number, chance):
        self._freeze(kind, number, chance, self._one(chance, beats=True))

    def _freeze_child(self, kind, number, chance):
        node = self._one(chance, kinds=("prefork", "embedded"))
        children = node.children() if node else []
        if children:
            child = chance.choice(children)
            self._note(kind, number, f"{child.pid} of {node}")

            def thaw():
                with suppress(Exception):
                    child.send_signal(signal.SIGCONT)

            with suppress(Exception):
                child.send_signal(signal.SIGSTOP)
            self._until(number, self._moment(chance), child.pid, thaw)

    def _fell_beat_in_mid_send(self, kind, number, chance):
        """The next beat that sends a tick dies, right before or after it is published."""
        moment = chance.choice(("before", "after"))
        self.stage.trap.write_text(moment)
        self._note(kind, number, moment)
        before = [node for node in self.stage.nodes if node.is_beat]
        for node in before:
            node.expected = True
        self._until(number, 3.0, "trap", lambda: self._after_trap(before))

    def _after_trap(self, before):
        self.stage.trap.unlink(missing_ok=True)
        for node in before:
            if node.runs and node in self.stage.nodes:
                node.expected = False
            elif not node.runs:
                self.stage.spawn("beat")

    def _end_gently(self, node):
        node.stop()

        def insist():
            if node.runs:
                node.kill()

        self.later(TOO_LONG, insist)

    def _stop_worker(self, kind, number, chance):
        node = self._one(chance)
        if node is not None:
            self._note(kind, number, node)
            self._end_gently(node)
            self.later(chance.uniform(0, 2), lambda: self.stage.spawn(node.kind))

    def _deploy(self, kind, number, chance):
        """One worker after the other is replaced, the new one before the old one."""
        nodes = self._nodes()
        if not nodes:
            return
        self._note(kind, number, f"{len(nodes)} workers")

        def replace(node):
            if node in self.stage.nodes and not node.expected:
                self.stage.spawn(node.kind)
                self.later(1.0, lambda: self._end_gently(node))

        pause = chance.uniform(0.5, 1.5)
        for step, node in enumerate(nodes):
            self.later(step * pause, lambda node=node: replace(node))
        self._until(number, len(nodes) * pause + 1.0, "deploy", lambda: None)

    def _scale_up(self, kind, number, chance):
        if len(self._nodes()) < MOST:
            pool = chance.choice(WORKERS)
            self._note(kind, number, pool)
            self.stage.spawn(pool)

    def _scale_down(self, kind, number, chance):
        node = self._one(chance)
        if node is not None and len(self._nodes()) > LEAST:
            self._note(kind, number, node)
            self._end_gently(node)

    # -- of arbiters ----------------------------------------------------------------------------

    def _server(self, chance):
        """The number of an arbiter that nothing befalls now; the first one half of the time."""
        free = [n for n in range(len(self.stage.servers)) if f"server {n}" not in self._busy]
        if not free:
            return None
        return 0 if 0 in free and chance.random() < 0.5 else chance.choice(free)

    def _restart_server(self, kind, number, chance, *, data):
        which = self._server(chance)
        if which is None:
            return
        server = self.stage.servers[which]
        lost = {} if data else {"lost": now()}
        self._note(kind, number, f"server {which}", server=which, **lost)
        server.kill()
        away = chance.choice((0.0, chance.uniform(0.0, 2.0)))
        self._until(number, away, f"server {which}", lambda: server.restart(data=data))

    def _restart_server_empty(self, kind, number, chance):
        self._restart_server(kind, number, chance, data=False)

    def _restart_server_with_data(self, kind, number, chance):
        self._restart_server(kind, number, chance, data=True)

    def _flush_server(self, kind, number, chance):
        which = self._server(chance)
        if which is not None:
            self._note(kind, number, f"server {which}", server=which, lost=now())
            self.stage.servers[which].cli("FLUSHALL")
            self._healed(number)

    def _freeze_server(self, kind, number, chance):
        which = self._server(chance)
        if which is not None:
            server = self.stage.servers[which]
            self._note(kind, number, f"server {which}", server=which)
            server.freeze()
            self._until(number, self._moment(chance), f"server {which}", server.thaw)

    def _fill_server(self, kind, number, chance):
        """It has no memory left, and evicts nothing: every command that could grow is refused."""
        which = self._server(chance)
        if which is not None:
            server = self.stage.servers[which]
            self._note(kind, number, f"server {which}", server=which)
            server.cli("CONFIG", "SET", "maxmemory", "1")
            self._until(
                number,
                self._moment(chance),
                f"server {which}",
                lambda: server.cli("CONFIG", "SET", "maxmemory", "0"),
            )

    # -- of links -------------------------------------------------------------------------------

    def _link(self, kind, number, chance, apply):
        """To one arbiter, of one half of the fleet or of all."""
        which = self._server(chance)
        if which is None:
            return
        sides = chance.choice(([0], [1], [0, 1]))
        proxies = [self.stage.proxies[which][side] for side in sides]
        of = "all" if len(sides) > 1 else f"half {sides[0]}"
        self._note(kind, number, f"server {which}, {of}", server=which)
        for proxy in proxies:
            apply(proxy)

        def heal():
            for proxy in proxies:
                proxy.heal()

        self._until(number, self._moment(chance), f"server {which}", heal)

    def _cut(self, kind, number, chance):
        self._link(kind, number, chance, lambda proxy: proxy.cut())

    def _hang(self, kind, number, chance):
        self._link(kind, number, chance, lambda proxy: proxy.hang())

    def _slow(self, kind, number, chance):
        seconds = chance.uniform(0.02, 0.4)
        self._link(kind, number, chance, lambda proxy: proxy.delay(seconds))

    def _lossy(self, kind, number, chance):
        count = chance.randint(1, 10)
        self._link(kind, number, chance, lambda proxy: proxy.drop_answers(count))

    # -- of the broker --------------------------------------------------------------------------

    def _restart_broker(self, kind, number, chance):
        if "broker" not in self._busy:
            self._note(kind, number, "broker")
            self.stage.broker.kill()
            self._until(number, chance.uniform(0, 1.5), "broker", self.stage.broker.start)

"""What the processes of the simulation talk over: servers, connections, and how both fail."""

from __future__ import annotations

import math
from itertools import count

from celery_atomicity import keys
from celery_atomicity.connection import Reply
from celery_atomicity.connection.exchange import HELLO
from celery_atomicity.connection.question import PATIENCE
from celery_atomicity.errors import Unavailable
from simulation.lock_store import SCRIPTS, Store
from simulation.lock_time import EPOCH

# The group has been in use for an hour when a history begins.
USED = 3600.0


class Server:
    def __init__(self, world, index, skew):
        self.world, self.index, self.skew = world, index, skew
        self.store = Store()
        self.copies = []
        self.up = True
        self.links = set()
        self.run = f"run-{index}-0"
        self.runs = count(1)
        self.started = -USED

    def now_us(self):
        return int((EPOCH + self.world.now + self.skew) * 1e6)

    def execute(self, name, names, arguments):
        return SCRIPTS[name](self.store, self.now_us(), names, list(arguments), self.publish)

    def publish(self, channel, said):
        process = self.world.by_channel.get(channel)
        if process is None or process.dead or not process.mailbox.subscribed:
            return 0
        run = process.mailbox.run
        delay, chance = self.world.latency(), self.world.chance
        lost, unheard, slow, _ = self.world.history.faults
        if chance.random() < lost + unheard:
            return int(run == self.run)
        if chance.random() < slow:
            delay += chance.random() * self.world.history.slow
        self.world.later(delay, process, process.mailbox.ring, said, run)
        # Who listens to a replica of ours hears it, but is not counted.
        return int(run == self.run)

    def down(self, *, silences=True):
        self.up = False
        for link in list(self.links):
            link.broken = True
            process = link.process
            self.world.later(self.world.latency(), process, process.clients.reset, link)
        self.links.clear()
        if self.index == 0 and silences:
            for process in self.world.processes:
                process.mailbox.subscribed = False

    def back(self, store, *, silenced=True):
        self.store = store
        self.run = f"run-{self.index}-{next(self.runs)}"
        self.started = self.world.now
        self.up = True
        if self.index == 0 and silenced:
            for process in self.world.processes:
                self.world.later(0.01, process, process.mailbox.resubscribe)

    def uptime(self):
        """As INFO tells it: the difference of two whole seconds."""
        base = EPOCH + self.skew
        return math.floor(base + self.world.now) - math.floor(base + self.started)


class Link:
    """A connection: what is sent on it arrives in order, or not at all any more."""

    __slots__ = ("answered", "arrived", "broken", "deaf", "pending", "process", "server")

    def __init__(self, process, server):
        self.process, self.server = process, server
        self.broken = False  # nothing of it reaches the server any more
        self.deaf = False  # nothing of it reaches the client any more
        self.arrived = self.answered = 0.0
        self.pending = []


class Question:
    def __init__(self, task, width, decided, sent, deadline, enough=None):
        self.task, self.decided, self.sent, self.deadline = task, decided, sent, deadline
        self.enough = enough
        self.replies = [None] * width
        self.missing = width
        self.done = False

    def answer(self, world, index, value, run):
        if self.done or self.replies[index] is not None:
            return
        process = self.task.process
        self.replies[index] = Reply(value, self.sent, process.clock(), run)
        self.missing -= 1
        if not self.missing or (self.decided and self.decided(self.replies)):
            self.finish(world)
        elif self.enough and self.enough(self.replies):
            self.enough = None
            world.later(PATIENCE, process, self.finish, world)

    def finish(self, world):
        if not self.done:
            self.done = True
            world.wake(self.task)


class Clients:
    """What the connections of a process do, as far as those who ask can tell."""

    troubles = ()  # nobody reads its errors

    def __init__(self, process, settings):
        self.process, self.world = process, process.world
        self.settings = settings
        self.links = [None] * self.count
        self.connecting = [False] * self.count
        self.failed = [False] * self.count
        self.owed = [[] for _ in range(self.count)]
        self.retry_at = [0.0] * self.count
        self.pauses = [0.02] * self.count
        self.waiters = []
        self.cut_until = 0.0

    @property
    def count(self):
        return len(self.world.servers)

    def ask(self, script, names, arguments):
        self._connect([0], 1)
        question = self._question(1, None)
        self._send(0, question, [(0, (script, names, arguments))])
        self._await(question)
        [reply] = question.replies
        if isinstance(reply.value, Exception):
            raise Unavailable("not served")
        return reply

    def ask_each(self, calls, *, decided, enough=None):
        self._connect(range(self.count), self.count // 2 + 1)
        width = len(calls[0])
        question = self._question(self.count * width, decided, enough)
        for address, its in enumerate(calls):
            self._send(
                address, question, [(address * width + i, call) for i, call in enumerate(its)]
            )
        if not question.done and decided(question.replies):
            question.done = True
        self._await(question)
        return list(question.replies)

    def _question(self, width, decided, enough=None):
        sent = self.process.clock()
        return Question(
            self.world.current(),
            width,
            decided,
            sent,
            self.world.now + self.settings.timeout,
            enough,
        )

    def _connect(self, addresses, needed):
        world = self.world
        for address in addresses:
            if (
                self.links[address] is None
                and not self.connecting[address]
                and world.now >= self.retry_at[address]
            ):
                self.connecting[address] = True
                world.later(world.latency(), self.process, self._reach, address)
        deadline = world.now + self.settings.timeout
        while (
            world.now < deadline
            and sum(self.links[one] is not None for one in addresses) < needed
            and any(self.connecting[one] for one in addresses)
        ):
            self.waiters.append(world.current())
            world.block(deadline - world.now)
        deadline = world.now + HELLO
        while world.now < deadline and any(
            self.connecting[one] and not self.failed[one] for one in addresses
        ):
            self.waiters.append(world.current())
            world.block(deadline - world.now)

    def _reach(self, address):
        """The connection stands or is refused; the server is asked for its run."""
        world, server = self.world, self.world.servers[address]
        if server.up and self.cut_until <= world.now:
            uptime = max(0, server.uptime() - 1) * 1000
            grace = round(self.settings.grace * 1000)
            server.execute("arrive", [keys.MARKER], [server.run, uptime, grace])
            link = Link(self.process, server)
            server.links.add(link)
            world.later(world.latency(), self.process, self._reached, address, link, server.run)
        else:
            world.later(world.latency(), self.process, self._refused, address)

    def _reached(self, address, link, run):
        self.connecting[address] = False
        if link.broken:
            self._refused(address)
            return
        self.links[address] = link
        self.failed[address] = False
        owed, self.owed[address] = self.owed[address], []
        if owed:
            done = Question(None, len(owed), None, 0.0, self.world.now + self.settings.timeout)
            done.done = True
            self._send(address, done, list(enumerate(owed)))
        self.pauses[address] = 0.02
        self._wake()

    def _refused(self, address):
        self.connecting[address] = False
        self.failed[address] = True
        self.retry_at[address] = self.world.now + self.pauses[address]
        self.pauses[address] = min(0.5, 2 * self.pauses[address])
        self._wake()

    def _wake(self):
        waiters, self.waiters = self.waiters, []
        for task in waiters:
            self.world.wake(task)

    def _send(self, address, question, calls):
        world, link = self.world, self.links[address]
        if link is None:
            self.owed[address] += [call for _, call in calls if call[0]._late]
            for index, _ in calls:
                question.answer(world, index, ConnectionError("down"), "")
            return
        lost, unheard, slow, doubled = world.history.faults
        dice = world.chance.random()
        delay = world.latency()
        link.pending.append((question, calls))
        if dice < lost:
            link.broken = link.deaf = True  # it and all that follows is lost
        elif dice < lost + unheard:
            link.deaf = True
        elif dice < lost + unheard + slow:
            delay += world.chance.random() * world.history.slow
        link.arrived = max(link.arrived, world.now + delay)
        if not link.broken:
            world.at(link.arrived, None, self._serve, link, question, calls, True)
            if dice > 1 - doubled:
                late = link.arrived + world.chance.random() * world.history.slow
                world.at(late, None, self._serve, link, question, calls, False)

    def _serve(self, link, question, calls, is_first):
        world, server = self.world, link.server
        if link.broken or not server.up:
            return
        answers = [
            (index, server.execute(script.name, names, arguments))
            for index, (script, names, arguments) in calls
        ]
        if is_first and not link.deaf:
            delay = world.latency()
            if world.chance.random() < world.history.faults[2]:
                delay += world.chance.random() * world.history.slow
            link.answered = max(link.answered, world.now + delay)
            world.at(
                link.answered, self.process, self._answered, link, question, answers, server.run
            )

    def _answered(self, link, question, answers, run):
        if link not in self.links or link.deaf:
            return
        link.pending.pop(0)
        for index, value in answers:
            question.answer(self.world, index, _wire(value), run)

    def _await(self, question):
        world = self.world
        while not question.done:
            left = question.deadline - world.now
            if left <= 0:
                for link in list(self.links):
                    if (
                        link is not None
                        and link.pending
                        and link.pending[0][0].deadline <= world.now
                    ):
                        self._drop(link, TimeoutError("no answer"))
                for index, reply in enumerate(question.replies):
                    if reply is None:
                        question.answer(world, index, TimeoutError("no answer"), "")
                return
            world.block(left)
        # A link whose oldest question is overdue is given up when next somebody asks.
        for link in list(self.links):
            if link is not None and link.pending and link.pending[0][0].deadline < world.now:
                self._drop(link, TimeoutError("no answer"))

    def cut(self, seconds):
        self.cut_until = self.world.now + seconds
        for link in self.links:
            if link is not None:
                link.broken = link.deaf = True

    def reset(self, link):
        if link in self.links:
            self._drop(link, ConnectionError("reset"))

    def _drop(self, link, error):
        address = link.server.index
        self.links[address] = None
        self.failed[address] = True
        self.retry_at[address] = self.world.now + self.pauses[address]
        pending, link.pending = link.pending, []
        for question, calls in pending:
            self.owed[address] += [call for _, call in calls if call[0]._late]
            for index, _ in calls:
                question.answer(self.world, index, error, "")


def _wire(value):
    if isinstance(value, list):
        return [each.encode() if isinstance(each, str) else each for each in value]
    return value


class Bell:
    def __init__(self):
        self.is_set = False
        self.said = self.run = ""
        self.tasks = []

    def ring(self, said="", run=""):
        self.is_set, self.said, self.run = True, said, run
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.process.world.wake(task)

    def muffle(self):
        self.is_set, self.said = False, ""


class Mailbox:
    def __init__(self, process, channel):
        self.process, self.channel = process, channel
        self.waiting = {}
        self.subscribed = True
        self.run = process.world.servers[0].run

    @property
    def listens(self):
        return self.subscribed

    def expect(self, ticket, _seconds):
        if not self.subscribed:
            return None
        bell = self.waiting[ticket] = Bell()
        return bell

    def wait(self, bell, seconds):
        if not bell.is_set:
            bell.tasks.append(self.process.world.current())
            self.process.world.block(seconds)

    def forget(self, ticket):
        self.waiting.pop(ticket, None)

    def ring(self, text, run):
        ticket, _, said = text.partition(" ")
        if ticket in self.waiting:
            self.waiting[ticket].ring(said, run)

    def resubscribe(self):
        self.subscribed = self.process.world.servers[0].up
        self.run = self.process.world.servers[0].run
        for bell in list(self.waiting.values()):
            bell.ring()

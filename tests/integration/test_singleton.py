"""``singleton_by`` in one process against a real server: eager and direct calls, and faults."""

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import uuid
from dataclasses import replace

import pytest
from celery import Celery, chain, chord
from celery.app.trace import build_tracer
from celery.signals import before_task_publish

from celery_atomicity import (
    AlreadyHeld,
    Atomicity,
    LeaseLost,
    LockTimeout,
    clock,
    current_lease,
    keys,
    singleton_by,
)
from celery_atomicity.atom import arbiter_of
from celery_atomicity.integration.logs import LeaseFilter
from celery_atomicity.integration.tasks import stopping
from celery_atomicity.integration.tasks.skipped import Skip
from celery_atomicity.integration.warden import Warden
from celery_atomicity.primitives.estate import Estate
from celery_atomicity.primitives.keeper import Keeper

# Reads the results "success" and "skipped" of the backend at its argument.
READER = """
import sys
from celery import Celery
from celery.exceptions import TimeoutError

app = Celery("reader", backend=sys.argv[1])
print(app.AsyncResult("success").state, app.AsyncResult("success").get(timeout=30)["skipped"])
try:
    app.AsyncResult("skipped").get(timeout=0.3)
except TimeoutError:
    print("waits")
import celery_atomicity
result = app.AsyncResult("skipped")
print(result.state, result.get(timeout=30)["skipped"])
"""


@pytest.fixture
def app(server, group):
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.update(
        atomicity_redis=server.url,
        atomicity_group=group,
        atomicity_restart_grace=0,
        task_always_eager=True,
    )
    Atomicity(app)
    yield app
    app.close()


@pytest.fixture
def task(app):
    """A factory of tasks, plain functions that are decorated as the test says."""

    def make(key="{x}", function=None, **options):
        def run(x, seconds=0.0):
            clock.sleep(seconds)
            return current_lease.fence

        function = function or run
        function.__name__ = "function"  # Celery writes it into a signature
        name = uuid.uuid4().hex
        return app.task(shared=False, lazy=False, name=name)(singleton_by(key, **options)(function))

    return make


@pytest.fixture
def holding(app):
    """A factory: ``with holding("scope:key"):`` somebody else has that key."""
    lock = Atomicity.of(app).atom().lock

    @contextlib.contextmanager
    def hold(key, **options):
        lease = lock(key, **options).acquire()  # not ``with``: this block is somebody else's
        try:
            yield lease
        finally:
            lease.release()

    return hold


def kept(app):
    """What the keeper of this process renews."""
    return arbiter_of(Atomicity.of(app).settings).keeper.leases


def run_as_worker(task, *args, **request):
    request = {"id": uuid.uuid4().hex, "is_eager": False, "delivery_info": {}, **request}
    return build_tracer(task.name, task, app=task.app)(request["id"], args, {}, request)


class TestEagerAndDirect:
    def test_the_key_is_held_while_it_runs_and_free_after(self, app, task, holding):
        seen = []
        mine = task(scope="s", function=lambda x: seen.append(current_lease.keys))

        assert mine.delay("a").get() is None
        mine("b")

        assert seen == [("s:a",), ("s:b",)]
        assert kept(app) == []
        for key in ("s:a", "s:b"):
            with holding(key, wait=0):
                pass

    def test_the_scope_is_the_task_by_default(self, task):
        mine = task(function=lambda x: current_lease.keys)

        assert mine.delay(1).get() == (f"{mine.name}:1",)
        assert mine(1) == mine.run(1) == (f"{mine.name}:1",)

    def test_several_keys(self, task):
        mine = task(["a:{x}", "b:{x}"], function=lambda x: current_lease.keys, scope="s")

        assert mine(1) == ("s:a:1", "s:b:1")

    def test_skip(self, task, holding):
        mine = task(scope="s", on_conflict="skip")
        with holding("s:a", holder="somebody"):
            eager = mine.delay("a")
            direct = mine("a")

        assert eager.state == "SKIPPED"
        assert eager.get() == eager.result
        assert eager.result.keys() == direct.keys()
        assert direct["key"] == "s:a"
        assert direct["holder"].startswith("somebody, since ")
        assert mine.delay("a").state == "SUCCESS"

    def test_skip_in_an_eager_chord_and_chain(self, app, task, holding):
        mine = task(scope="s", on_conflict="skip")

        @app.task(shared=False, name=uuid.uuid4().hex)
        def collect(results):
            return results

        with holding("s:a"):
            [skipped] = chord([mine.s("a")], collect.s())().get()
            chained = chain(mine.s("a"), collect.s())().get()

        assert skipped["skipped"] is True
        assert chained["skipped"] is True

    def test_raise(self, task, holding):
        mine = task(scope="s", on_conflict="raise")

        with holding("s:a", holder="somebody"), pytest.raises(LockTimeout, match="somebody"):
            mine("a")

    @pytest.mark.parametrize("on_conflict", ["wait", "retry"])
    def test_waits_here_no_longer_than_it_is_told(self, task, holding, on_conflict):  # LOCK-03
        mine = task(scope="s", on_conflict=on_conflict, wait=0.05)

        with holding("s:a", holder="somebody"):
            for call in (mine, lambda x: mine.delay(x).get()):
                with pytest.raises(LockTimeout, match="somebody"):
                    call("a")

    @pytest.mark.parametrize("on_conflict", ["wait", "retry"])
    def test_waits_here_for_what_a_worker_would_come_back_for(self, task, holding, on_conflict):
        mine = task(scope="s", on_conflict=on_conflict)
        with holding("s:a") as lease:
            timer = threading.Timer(0.2, lease.release)
            timer.start()

            assert mine("a") > lease.fence
            timer.join()

    def test_a_task_that_calls_itself_for_the_same_key(self, task):  # LOCK-14
        def again(x):
            return mine(x)

        mine = task(function=again)

        with pytest.raises(AlreadyHeld):
            mine(1)

    def test_a_lock_timeout_of_the_task_itself_is_its_failure(self, task, holding):
        def locks(x):
            with holding("other", wait=0):
                return x

        mine = task(function=locks, on_conflict="skip")

        with holding("other"), pytest.raises(LockTimeout):
            mine(1)

    def test_min_hold(self, task):  # LOCK-12
        mine = task(min_hold=30, on_conflict="skip")

        assert isinstance(mine(1), int)
        assert mine(1)["skipped"] is True
        assert isinstance(mine(2), int)


class TestEnds:
    def test_an_exception_goes_out_and_the_key_is_free(self, app, task, server):
        def fail(x):
            raise ValueError(x)

        with pytest.raises(ValueError, match="7"):
            task(function=fail)(7)

        assert kept(app) == []
        assert server.cli("KEYS", "atom:*:lock:*") == []

    def test_a_call_that_does_not_fit_asks_nothing(self, app, task, server):  # F03
        mine = task()
        before = server.cli("INFO", "commandstats")

        with pytest.raises(TypeError):
            mine()

        assert "evalsha" not in str(before)
        assert "evalsha" not in str(server.cli("INFO", "commandstats"))

    def test_a_result_comes_also_if_the_arbiter_dies_meanwhile(self, task, server, caplog):
        """The lease still stands; that it could not be let go is said."""

        def kill(x):
            server.kill()
            return x

        assert task(function=kill)(1) == 1
        assert "could not be released" in caplog.text

    # A socket that was just being connected is left to be closed by its end.
    @pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning")
    def test_a_time_limit_anywhere_leaves_nothing_behind(self, app, task, server):  # F10
        """Struck at any instant, also inside of our own code, it frees the key at once."""

        class SoftLimit(Exception):
            pass

        armed = []

        def strike(_signal, _frame):
            if armed:
                armed.clear()
                raise SoftLimit

        mine = task(scope="s")
        mine("a")
        key = f"atom:{app.conf.atomicity_group}:lock:s:a"
        before = signal.signal(signal.SIGALRM, strike)
        struck = 0
        try:
            for number in range(300):
                try:
                    armed.append(True)
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 + number % 100 * 20e-6)
                    mine("a", 0.0005)
                    armed.clear()
                except SoftLimit:
                    struck += 1
                assert kept(app) == []
                assert server.cli("EXISTS", key) == 0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

        assert struck > 100
        assert mine("a") > 0


class TestGivesWay:
    """What publishes itself again lets go before it is published, not after."""

    @pytest.fixture
    def free(self, app, server):
        """Whether the key was free, each time that a task was published."""
        app.conf.task_always_eager = False  # to be published, even if nobody is to run it
        key = f"atom:{app.conf.atomicity_group}:lock:s:a"
        seen = []

        # After the receiver that gives way, which was connected before; nobody can have run it yet.
        def look(**_):
            seen.append(server.cli("EXISTS", key) == 0)

        before_task_publish.connect(look)
        yield seen
        before_task_publish.disconnect(look)

    @pytest.mark.parametrize("over", [False, True], ids=["under", "over"])
    @pytest.mark.parametrize("how", ["retry", "autoretry_for", "replace"])
    def test_before_it_is_published(self, app, free, how, over):  # F12
        held = []

        @app.task(shared=False, name="other")
        def other():
            """Takes the place of the one that is replaced."""

        def function(self, x):
            held.append(current_lease.fence)
            if how == "retry":
                raise self.retry(countdown=0)
            if how == "replace":
                raise self.replace(other.si())
            raise ValueError(x)

        options = {"bind": True, "shared": False, "name": uuid.uuid4().hex}
        if how == "autoretry_for":
            options |= {"autoretry_for": (ValueError,), "retry_kwargs": {"countdown": 0}}
        guard = singleton_by("{x}", scope="s")
        task = (
            guard(app.task(**options)(function)) if over else app.task(**options)(guard(function))
        )
        app.finalize()

        run_as_worker(task, "a")

        assert len(held) == 1
        assert free == [True]
        assert kept(app) == []


class TestOnLost:
    def lose(self, server, group, key="s:a"):
        server.cli("DEL", f"atom:{group}:lock:{key}")

    @pytest.fixture
    def loses(self, server, group):
        """A function whose key is deleted as it begins, and that then runs for a while."""

        def run(x, seconds=1.0):
            self.lose(server, group)
            clock.sleep(seconds)
            return "result"

        return run

    def test_fail(self, task, loses):  # LOCK-07
        with pytest.raises(LeaseLost, match="s:a") as caught:
            task(function=loses, scope="s", ttl=0.5)("a")

        assert caught.value.fence > 0

    def test_fail_comes_from_the_tasks_own_error(self, task, loses):
        def run(x):
            loses(x)
            raise ValueError("mine")

        with pytest.raises(LeaseLost) as caught:
            task(function=run, scope="s", ttl=0.5)("a")

        assert str(caught.value.__cause__) == "mine"

    def test_log(self, task, loses, caplog):
        assert task(function=loses, scope="s", ttl=0.5, on_lost="log")("a") == "result"
        assert "went on to its end without its lease" in caplog.text

    def test_interrupt(self, task, loses):
        seen = []

        def run(x):
            try:
                loses(x, 30)
            except LeaseLost as error:
                seen.append(error)
                raise

        with pytest.raises(LeaseLost) as caught:
            task(function=run, scope="s", ttl=2, on_lost="interrupt")("a")

        assert type(caught.value) is LeaseLost
        assert str(seen[0]) == str(caught.value)
        assert seen[0].fence == caught.value.fence

    def test_interrupt_while_the_log_is_locked(self, task, loses):  # LOCK-06, LOCK-07
        """A time limit that strikes in the middle of logging leaves it locked for good."""
        seen = []

        def run(x):
            try:
                loses(x, 30)
            except LeaseLost as error:
                seen.append(error)
                raise

        mine = task(function=run, scope="s", ttl=2, on_lost="interrupt")

        with logging._lock, pytest.raises(LeaseLost):
            mine("a")
        assert len(seen) == 1

    def test_interrupt_of_what_is_lost_before_it_begins(self, task, monkeypatch):  # LOCK-07
        ran = []

        def run(x):
            ran.append(x)

        mine = task(function=run, scope="s", ttl=0.2, max_hold=0.05, on_lost="interrupt")
        keep = Keeper.keep

        def stall(keeper, holding):
            lease = keep(keeper, holding)
            clock.sleep(0.1)
            return lease

        monkeypatch.setattr(Keeper, "keep", stall)

        with pytest.raises(LeaseLost, match="max_hold"):
            mine("a")
        assert ran == []

    def test_max_hold(self, task):  # LOCK-12
        with pytest.raises(LeaseLost, match="max_hold"):
            task(max_hold=0.1)(1, 0.3)


class TestInAWorker:
    def test_the_arbiter_down_is_no_reason_to_skip(self, app, task, server):
        """What nobody is known to hold is not skipped, or work would be lost in silence."""
        server.stop()

        outcome = run_as_worker(task(on_conflict="skip"), 1)

        assert outcome.info.state == "FAILURE"
        assert isinstance(outcome.info.retval, LockTimeout)
        assert outcome.info.retval.unreachable

    @pytest.mark.parametrize(
        "options",
        [{"on_conflict": "skip"}, {"on_conflict": "raise"}, {"wait": 0.05}],
        ids=["skip", "raise", "wait"],
    )
    def test_another_copy_of_itself_is_no_conflict(self, app, task, holding, options):  # LOCK-16
        """It comes again, whatever it does on a conflict: both have one result."""
        app.conf.task_always_eager = False
        published = []
        record = lambda headers, **_: published.append(headers["id"])
        mine = task(scope="s", **options)
        other = f"task {mine.name}[id-1] on celery@other"

        with holding("s:a", holder=other):
            before_task_publish.connect(record)
            copy = run_as_worker(mine, "a", id="id-1")
            another = run_as_worker(mine, "a", id="id-10")
            before_task_publish.disconnect(record)

        assert copy.info.state == "IGNORED"
        assert published == ["id-1"]
        assert app.AsyncResult("id-1").state == "PENDING"
        assert app.AsyncResult("id-10").state in ("SKIPPED", "FAILURE")
        assert another.info.state == ("IGNORED" if "skip" in options.values() else "FAILURE")

    def test_a_retry_outwaits_its_own_min_hold(self, app, task):  # F12, LOCK-12
        app.conf.task_always_eager = False

        def fail(x):
            raise ValueError(x)

        mine = task(function=fail, scope="s", min_hold=30, on_conflict="skip")

        run_as_worker(mine, "a", id="id-1")
        app.backend.delete(app.backend.get_key_for_task("id-1"))
        run_as_worker(mine, "a", id="id-1")

        assert app.AsyncResult("id-1").state == "PENDING"  # neither skipped nor failed

    def test_skip_stores_its_state(self, app, task, holding):
        mine = task(scope="s", on_conflict="skip")
        with holding("s:a"):
            outcome = run_as_worker(mine, "a", id="skipped-1")

        assert outcome.info.state == "IGNORED"
        app.conf.task_always_eager = False
        result = app.AsyncResult("skipped-1")
        assert (result.state, result.get()["key"]) == ("SKIPPED", "s:a")

    def test_who_reads_a_skip_has_to_know_it_or_is_told_success(
        self, app, task, holding, tmp_path, monkeypatch
    ):
        """A reader that never imported us waits for SKIPPED, until it does, and not for SUCCESS."""
        monkeypatch.setattr(app, "_local", threading.local())  # of which the backend is one
        app.conf.result_backend = f"file://{tmp_path}"
        mine = task(scope="s", on_conflict="skip")
        atomicity = Atomicity.of(app)
        with holding("s:a"):
            run_as_worker(mine, "a", id="skipped")
            told = replace(atomicity.settings, skipped_state="SUCCESS")
            monkeypatch.setattr(atomicity, "_settings", told)
            run_as_worker(mine, "a", id="success")
            eager = mine.apply(("a",))

        done = subprocess.run(
            [sys.executable, "-c", READER, app.conf.result_backend],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert eager.state == "SUCCESS"
        assert done.stdout.split() == ["SUCCESS", "True", "waits", "SKIPPED", "True"], done.stderr

    def test_a_skip_reaches_the_main_process(self):
        """A pool child pickles what ended its task."""
        skipped = pickle.loads(pickle.dumps(Skip({"skipped": True}, "SKIPPED")))

        assert (skipped.result, skipped.state) == ({"skipped": True}, "SKIPPED")

    def test_skip_stores_nothing_where_results_are_ignored(self, app, task, holding):
        mine = task(scope="s", on_conflict="skip")
        with holding("s:a"):
            run_as_worker(mine, "a", id="ignored-1", ignore_result=True)

        app.conf.task_always_eager = False
        assert app.AsyncResult("ignored-1").state == "PENDING"

    def test_who_waits_in_a_worker_that_stops_is_given_back(
        self, app, task, holding, monkeypatch, caplog
    ):
        """With the key still taken, and no sooner than the worker is told."""
        caplog.set_level(logging.INFO)
        app.conf.task_always_eager = False
        published = []
        record = lambda headers, **_: published.append(headers["id"])
        mine = task(scope="s")
        monkeypatch.setattr(stopping, "_page", bytearray(1))
        timer = threading.Timer(0.3, stopping.stop)

        with holding("s:a"):
            before_task_publish.connect(record)
            timer.start()
            outcome = run_as_worker(mine, "a", id="id-1")
            timer.join()
            before_task_publish.disconnect(record)

        assert outcome.info.state == "IGNORED"
        assert published == ["id-1"]
        assert run_as_worker(mine, "a").info is None  # a key that is free is taken all the same

    def test_who_holds_is_told(self, app, task, holding):  # LOCK-16
        seen = []

        def ask():
            try:
                with holding("s:a", wait=0):
                    pass
            except LockTimeout as error:
                seen.append(error.holder)

        def run(x):
            asking = threading.Thread(target=ask)
            asking.start()
            asking.join()

        mine = task(function=run, scope="s")
        run_as_worker(mine, "a", id="id-1", hostname="celery@node")

        assert seen[0].startswith(f"task {mine.name}[id-1] on celery@node, since ")

    def test_a_healthy_run_logs_nothing_above_info(self, app, task, caplog):
        caplog.set_level(logging.DEBUG)
        mine = task()
        run_as_worker(mine, 1)

        ours = [r for r in caplog.records if r.name.startswith("celery_atomicity")]
        assert [r.levelname for r in ours] == ["DEBUG"]
        assert ours[0].fence > 0


def test_the_fence_is_in_what_the_task_logs(app, task):
    records = []
    logger = logging.getLogger("shop.tasks")
    handler = logging.Handler()
    handler.emit = records.append
    handler.addFilter(LeaseFilter())
    logger.addHandler(handler)

    def run(x):
        logger.warning("inside")
        return current_lease.fence

    fence = task(function=run, scope="s")("a")
    logger.warning("outside")
    logger.removeHandler(handler)

    assert [(one.fence, one.lease) for one in records] == [(fence, "s:a"), ("", "")]


class TestWarden:
    def test_lets_go_for_the_dead_and_only_for_them(self, app, group, server):  # LOCK-18
        """A child that still runs keeps its keys; min_hold outlives it."""
        clients = Atomicity.of(app).clients
        estate = Estate(lambda: 1)
        ready, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for number, min_hold in enumerate((None, 30.0)):
                    places = keys.lock_places(group, [str(number)])
                    estate.note(f"id{number}".ljust(32), places, min_hold)
                os.write(told, b"x")
                signal.pause()
            finally:
                os._exit(1)
        os.read(ready, 1)
        for number in (0, 1):
            value = f"id{number}".ljust(32) + " holder"
            server.cli("SET", f"atom:{group}:lock:{number}", value, "PX", "60000")
        server.cli("SET", f"atom:{group}:lock:2", "another's")
        warden = Warden(clients, estate)

        warden.look()
        assert server.cli("EXISTS", f"atom:{group}:lock:0") == 1

        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped yet
        warden.look()
        os.waitpid(pid, 0)

        assert server.cli("EXISTS", f"atom:{group}:lock:0") == 0
        assert 0 < server.cli("PTTL", f"atom:{group}:lock:1") <= 30000
        assert server.cli("EXISTS", f"atom:{group}:lock:2") == 1
        os.close(ready)
        os.close(told)

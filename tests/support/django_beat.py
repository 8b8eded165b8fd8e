"""
Scenarios with django-celery-beat, for a process that has Django set up once.

Its argument is a database as Django wants it, in JSON: the template of all others. For each line
``scenario url group log`` it forks a child, which runs that scenario on a database of its own, and
answers with the child's exit status.
"""

import json
import os
import shutil
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1]))

import django
from django.conf import settings

DATABASE = json.loads(sys.argv[1])
settings.configure(
    DATABASES={"default": DATABASE},
    INSTALLED_APPS=["django_celery_beat"],
    # The tables as the models are, without the way they came to be.
    MIGRATION_MODULES={"django_celery_beat": None},
    USE_TZ=True,
    TIME_ZONE="UTC",
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)
django.setup()

from django.core.management import call_command
from django.db import connections
from django.utils import timezone
from django_celery_beat import models, schedulers
from support.beats import Clock, Driver, Owner, Queue, app_of

from celery_atomicity import partitioned
from celery_atomicity.integration.beat import DatabaseScheduler
from celery_atomicity.integration.beat import scheduler as module
from celery_atomicity.primitives.membership import Assignment

clock = Clock()
START = clock.now
module.Replica = Owner
# The scheduler and its models have the present from here.
schedulers.ModelEntry._default_now = lambda _self: clock.now
schedulers.now = schedulers.aware_now = clock
timezone.now = clock

#: The app of the scenario that this process runs, and its queue.
here = SimpleNamespace(app=None, queue=None)


def copy_of_template(name):
    """A database of its own for a scenario; its settings."""
    if "sqlite" in DATABASE["ENGINE"]:
        copy = f"{DATABASE['NAME']}-{name}"
        shutil.copy(DATABASE["NAME"], copy)
        return copy
    import psycopg

    where = {"host": DATABASE["HOST"], "user": DATABASE["USER"], "dbname": "postgres"}
    with psycopg.connect(**where, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{DATABASE["NAME"]}"')
    return name


def run(scenario, url, group):
    connections.settings["default"]["NAME"] = copy_of_template(group[-8:])
    here.app = app_of("shop", SimpleNamespace(url=url), group, clock=clock)
    here.queue = Queue(here.app, url)
    # Its schedules ask the current app.
    here.app.set_current()

    @here.app.task(name="sweep", shared=False)
    @partitioned(slots=4)
    def sweep(slot): ...

    globals()[f"test_{scenario}"]()
    engine = connections["default"].vendor
    assert engine in DATABASE["ENGINE"], engine


def beat(assignment=None):
    scheduler = DatabaseScheduler(app=here.app)
    driver = Driver(scheduler, clock)
    scheduler.tick()
    scheduler._replica.assign(assignment or Assignment(0, 1))
    driver.settle()
    return driver


def every(name, seconds, task="work", **fields):
    schedule, _ = models.IntervalSchedule.objects.get_or_create(every=seconds, period="seconds")
    return models.PeriodicTask.objects.create(name=name, task=task, interval=schedule, **fields)


def sent():
    return [
        (message.headers["atomicity_beat"]["entry"], (message.due - START).total_seconds())
        for message in here.queue.take()
        if message.task != "celery.backend_cleanup"
    ]


def test_shared_out():
    for n in range(30):
        every(f"e{n}", 10)
    beats = [beat(Assignment(n, 3)) for n in range(3)]
    names = []
    for _ in range(3):
        clock.forward(10)
        for driver in beats:
            driver.settle()
        names.append(sorted(name for name, _ in sent()))
    assert names == [sorted(f"e{n}" for n in range(30))] * 3, names


def test_pace():
    every("a", 600)
    for _ in range(16):
        driver = beat()
        driver.run(240)
        driver.scheduler.close()
    assert sent() == [("a", 600.0 * n) for n in range(1, 7)]


def test_added_changed_disabled_deleted():
    task = every("a", 10)
    driver = beat()
    driver.run(20)
    assert sent() == [("a", 10), ("a", 20)]
    every("b", 7)
    driver.run(10)
    sent()
    task.interval = models.IntervalSchedule.objects.create(every=3, period="seconds")
    task.save()
    driver.run(14)
    names = [name for name, _ in sent()]
    assert names.count("b") == 2, names
    assert names.count("a") >= 3, names
    task.enabled = False
    task.save()
    models.PeriodicTask.objects.get(name="b").delete()
    driver.run(10)
    sent()
    driver.run(60)
    assert sent() == []


def test_clocked():
    for name, at in (("past", -60), ("soon", 30), ("later", 90)):
        schedule = models.ClockedSchedule.objects.create(clocked_time=START + timedelta(seconds=at))
        models.PeriodicTask.objects.create(name=name, task="work", clocked=schedule, one_off=True)
    first, second = beat(), beat()
    first.run(60)
    second.settle()
    first.scheduler.close()
    second.run(120)
    beat().run(60)
    found = sent()
    assert found == [("past", -60), ("soon", 30), ("later", 90)], found
    assert not models.PeriodicTask.objects.filter(name="soon").get().enabled


def test_one_off():
    every("a", 10, one_off=True)
    first, second = beat(), beat()
    first.run(10)
    second.settle()
    second.run(60)
    beat().run(60)
    assert sent() == [("a", 10)]


def test_start_time():
    every("a", 10, start_time=START + timedelta(seconds=45))
    driver = beat()
    driver.run(66)
    assert sent() == [("a", 45), ("a", 55), ("a", 65)]


def test_reenabled():
    task = every("a", 100)
    driver = beat()
    driver.run(100)
    assert sent() == [("a", 100)]
    task.refresh_from_db()
    task.enabled = False
    task.save()
    driver.run(1000)
    assert sent() == []
    task.enabled = True
    task.save()
    at = (clock.now - START).total_seconds()
    driver.run(250)
    # Nothing is due for the time in which it was off.
    found = sent()
    assert [name for name, _ in found] == ["a", "a"], (found, at)
    assert abs(found[0][1] - at - 100) < 1, (found, at)


def test_partitioned():
    every("a", 10, task="sweep")
    every("b", 10, task="elsewhere", headers=json.dumps({"atomicity_slots": 3}))
    driver = beat()
    driver.run(20)
    assert sorted(sent()) == [("a", 10)] * 4 + [("a", 20)] * 4 + [("b", 10)] * 3 + [("b", 20)] * 3
    assert models.PeriodicTask.objects.get(name="a").total_run_count == 0
    driver.scheduler.close()
    assert models.PeriodicTask.objects.get(name="a").total_run_count == 2


def serve():
    call_command("migrate", verbosity=0, run_syncdb=True)
    connections.close_all()
    print("ready", flush=True)
    for line in sys.stdin:
        scenario, url, group, log = line.split()
        if (child := os.fork()) == 0:
            with Path(log).open("w") as output, redirect_stderr(output), redirect_stdout(output):
                try:
                    run(scenario, url, group)
                except Exception:  # noqa: BLE001 - the test reads it
                    traceback.print_exc()
                    output.flush()
                    os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


serve()

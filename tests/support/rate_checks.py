"""What is checked of rate-limited tasks on real workers."""

from pytest_celery import RESULT_TIMEOUT

from celery_atomicity.testing import wait_until
from support.rate_tasks import tell, unrelated


def attained(times, rate, burst=1):
    return (len(times) - burst) / (rate * (max(times) - min(times)))


def all_started(starts, count, timeout=60):
    wait_until(lambda: len(starts()) >= count, timeout, f"{count} tasks start")
    return starts()


def at(entries):
    return [entry["at"] for entry in entries]


def calls(arbiter):
    stats = arbiter.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


def assert_message_stays(app):
    """Of three tasks at once two come back; they tell the same of themselves as the first."""
    options = {
        "headers": {"traceparent": "00-aa-bb-01", "tenant": {"id": 7}},
        "priority": 3,
        "shadow": "shadowed",
        "time_limit": 50,
        "soft_time_limit": 40,
        "expires": 600,
        "link": unrelated.si(),
        "argsrepr": "(hidden)",
        "retries": 2,
        "reply_to": "somebody",
        "origin": "elsewhere",
    }
    sent = [app.send_task(tell.name, (1, {"b": [2]}), {"c": None}, **options) for _ in range(3)]

    direct, *came_back = [result.get(timeout=RESULT_TIMEOUT) for result in sent]

    for told in (direct, *came_back):
        told["headers"].pop("sent_at", None)  # of another test's signal

    for told, result in zip(came_back, sent[1:], strict=True):
        assert told["id"] == result.id == told["root_id"]
        assert told["parent_id"] is None
        assert told["headers"]["traceparent"] == "00-aa-bb-01"
        different = ("id", "root_id", "expires")
        assert {k: v for k, v in told.items() if k not in different} == {
            k: v for k, v in direct.items() if k not in different
        }

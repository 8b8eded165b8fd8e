"""
The demo: a fleet of workers of a small shop on this machine, one of them killed, and checked.

    python examples/fleet.py                       # with a server of its own; about a minute
    python examples/fleet.py --redis redis://localhost:6379/0
    python examples/fleet.py --short               # half of that

Exits with 0 if every fact that it prints in the end is true, with 1 if one is not.
"""

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from celery_atomicity.testing import Server, ServerError
from demo.screen import Screen
from shop.partner import Partner

# Seconds for which there is work to do; to begin and to come to an end takes some more.
LONG, SHORT = 42, 15

# Of the fleet, in seconds; short, so that a minute shows something.
FLEET = {"ATOMICITY_INTERVAL": "1", "ATOMICITY_TIMEOUT": "0.5", "ATOMICITY_LOCK_TTL": "3"}


def main():
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        with ExitStack() as stack:
            return run(options, stack)
    except KeyboardInterrupt:
        print("\nEnded early; everything that was started is gone.")
        return 130
    except (ServerError, RedisError) as error:
        print(f"There is no server to play on: {error}", file=sys.stderr)
        return 1


def interrupt(*_):
    raise KeyboardInterrupt


def parse():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--redis", metavar="URL", help="a server that exists, in place of our own")
    parser.add_argument("--seconds", type=int, default=LONG, help="to give work for")
    parser.add_argument("--short", action="store_true", help=f"as --seconds {SHORT}")
    options = parser.parse_args()
    if options.short:
        options.seconds = SHORT
    if options.seconds < SHORT:
        parser.error(f"--seconds {options.seconds}: the fleet needs {SHORT} to show anything")
    return options


def run(options, stack):
    screen = Screen()
    directory = Path(tempfile.mkdtemp(prefix="atomicity-fleet-"))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    url = options.redis
    if not url:
        server = stack.enter_context(Server())
        url = server.url
    with Redis.from_url(url) as client:
        client.ping()
    partner = stack.enter_context(Partner())
    # Nobody else has this name, so that nothing on a server that exists is touched.
    name = f"fleet-{secrets.token_hex(4)}"
    os.environ.update(FLEET, SHOP_NAME=name, SHOP_BROKER=url, SHOP_PARTNER=partner.url)
    # Not before: the shop reads its environment where it is imported.
    from demo.fleet import Fleet  # noqa: PLC0415

    fleet = stack.enter_context(Fleet(screen, directory, partner))
    screen.say(f"A fleet called {name} on {options.redis or f'{server.binary.name} {url}'}")
    fleet.play(options.seconds)
    return fleet.judge()


if __name__ == "__main__":
    sys.exit(main())

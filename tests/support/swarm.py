"""
A process with many who ask at once: ``python -m support.swarm '{"pool": "gevent", ...}'``.

Says when it begins and when it is done, and stays until it is told to end.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def main(options):
    if options["pool"] == "gevent":
        from gevent import monkey

        monkey.patch_all()
    print("begun", flush=True)
    if options["pool"] == "prefork":
        children = [_fork(options) for _ in range(options["size"])]
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
    else:
        many(options)
    print("done", flush=True)
    sys.stdin.readline()


def _fork(options):
    # What the parent has opened before is not the child's to use.
    atom_of(options).meter(["parent"], [1])
    child = os.fork()
    if child == 0:
        try:
            many(options | {"size": 1})
        except BaseException:  # noqa: BLE001 - our parent only sees how we end
            os._exit(1)
        os._exit(0)
    return child


def atom_of(options):
    from celery_atomicity.atom import Atom
    from celery_atomicity.settings import Settings

    conf = {
        "atomicity_redis": options["urls"],
        "atomicity_restart_grace": 0,
        "atomicity_timeout": 10,
    }
    return Atom(options["group"], settings=Settings.read(conf, {}))


def many(options):
    """Work in *size* threads, or in whatever they are patched to be."""
    import threading

    atom, wrong = atom_of(options), []

    def work(number):
        try:
            for count in range(options["rounds"]):
                # Some wait for each other, most do not.
                key = f"shared-{count % 3}" if number % 10 == 0 else f"own-{number}"
                with atom.lock(key) as lease:
                    lease.check()
                atom.meter([f"k{number}"], [1.0])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(options["size"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


class Swarm:
    """The other end."""

    def __init__(self, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "support.swarm", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert self.process.stdout.readline() == "begun\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def wait(self):
        """Wait until it is done; whether all went well."""
        return self.process.stdout.readline() == "done\n"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""A process that takes one lock and does as it is told; started and spoken to by *Holder*."""

import json
import os
import subprocess
import sys
import threading

from celery_atomicity import LockTimeout, clock
from celery_atomicity.atom import Atom
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until


def main(options):
    settings = Settings.read(options["settings"], {})
    atom = Atom(options["group"], settings=settings)
    say("asks", os.getpid())
    try:
        lease = atom.lock(options["keys"], **options["lock"]).acquire()
    except LockTimeout:
        say("timeout")
        return
    say("held", lease.fence)
    for line in sys.stdin:
        if line == "check\n":
            say("lost" if lease.lost else "lives")
        elif line == "release\n":
            lease.release()
            say("released")
        elif line == "end\n":
            return  # as a process ends that forgot its lease


def say(*words):
    print(*words, clock.monotonic(), flush=True)


class Holder:
    """The other end: a process of its own that asks for *keys* as soon as it is made."""

    def __init__(self, settings, group, keys, **lock):
        options = {"settings": settings, "group": group, "keys": keys, "lock": lock}
        self.process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.pid = self.process.pid
        self.said = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self):
        for line in self.process.stdout:
            self.said.append(line.split())

    def has_said(self, word):
        return any(line[0] == word for line in list(self.said))

    def expect(self, word, timeout=10):
        wait_until(lambda: self.has_said(word), timeout, f"the other process says {word!r}")
        return next(line for line in self.said if line[0] == word)

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self._listener.join(5)
        self.process.stdout.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""A "container" that is a process group with a directory of its own."""

import io
import itertools
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

from celery_atomicity.testing import dies_with_us, free_port
from support import secret
from support.procgroup import counted, is_stopped, members, runs
from support.services import service_for


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class ProcessContainer:
    """Stands for ``docker.models.containers.Container``."""

    def __init__(
        self,
        root,
        image,
        *,
        command=(),
        environment=None,
        volumes=None,
        ports=None,
        labels=None,
        network="none",
        detach=True,
    ):
        self.id = secrets.token_hex(32)
        self.name = f"process-{self.id[:12]}"
        self.labels = labels or {}
        self.status = "created"
        self._process = None
        self._group = None
        self._network = network
        self._paused = False
        self._directory = root / self.id[:12]
        self._private = self._directory / "tmp"  # what /tmp is to a container
        self._private.mkdir(parents=True)
        self._log = self._directory / "log"
        self._log.touch()
        self._binds = {bind["bind"]: outside for outside, bind in (volumes or {}).items()}
        self._binds["/tmp"] = str(self._private)
        self._cwd = next(iter(self._binds.values()))
        self._ports = {inside: free_port() for inside in ports or ()}
        service = service_for(image)
        self._tells = service is None
        if service is not None:
            [port] = self._ports.values()
            # Nodes are told this name and no port, so it carries the port.
            self._hostname = f"127.0.0.1:{port}"
            self._argv, given = service.program(command, port, self._directory)
        else:
            self._hostname, given = self.id[:12], {}
            self._argv = [self._outside(part).replace("%h", self._hostname) for part in command]
        given |= {key: self._outside(value) for key, value in (environment or {}).items()}
        self._env = self._environment(given)

    @property
    def attrs(self):
        bindings = {
            inside: [{"HostIp": "127.0.0.1", "HostPort": str(port)}]
            for inside, port in self._ports.items()
        }
        return {
            "State": {"Status": self.status, "Pid": self._process.pid if self._process else 0},
            "Config": {
                "Hostname": self._hostname,
                "Labels": self.labels,
                "Env": [f"{key}={value}" for key, value in self._env.items()],
            },
            "HostConfig": {"PortBindings": bindings},
            "NetworkSettings": {
                "Networks": {self._network: {"IPAddress": "127.0.0.1"}},
                "Ports": bindings,
            },
        }

    def reload(self):
        if self._process is not None:
            if self._process.poll() is None:
                self.status = "paused" if self._paused else "running"
            else:
                self._sweep()
                self.status = "exited"

    def start(self):
        if not self._argv:
            raise ValueError(f"{self.name} has no command, and its image is no service known here")
        with self._log.open("ab") as log:
            # The log spans all boots, as Docker's does.
            self._process = subprocess.Popen(
                [*dies_with_us(), *self._argv],
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._group = self._process.pid
        if self._ports:
            self._wait_for_ports()
        self.reload()

    def kill(self, signal=None):
        number = _number(signal)
        if number is _number(None):
            # The end of a container's main process takes all others along.
            self._sweep()
        elif self._process.poll() is None:
            self._process.send_signal(number)

    def pause(self):
        """Freeze all of its processes, as Docker does; a signal by `kill` meets the main one."""
        os.killpg(self._group, signal.SIGSTOP)
        self._paused = True
        for _ in counted(10):
            if all(is_stopped(each) for each in members(self._group)):
                self.reload()
                return
        raise RuntimeError(f"{self.name} does not stop")

    def unpause(self):
        os.killpg(self._group, signal.SIGCONT)
        self._paused = False
        self.reload()

    def stop(self, timeout=10):
        if self._process is not None and self._process.poll() is None:
            if self._paused:
                self.unpause()
            self._process.terminate()
            for _ in counted(timeout):
                if self._process.poll() is not None:
                    break
            else:
                self._tell()
        self._sweep()
        self.reload()

    def restart(self, timeout=10):
        self.stop(timeout)
        self.start()

    def wait(self, timeout=None):
        for _ in counted(timeout) if timeout is not None else itertools.repeat(None):
            if self._process.poll() is not None:
                return {"StatusCode": self._process.returncode}
        raise TimeoutError(f"{self.name} has not ended within {timeout} s")

    def remove(self, force=False):
        if self._process is not None and self._process.poll() is None and not force:
            raise RuntimeError(f"{self.name} runs: stop it first, or force")
        self._sweep()
        secret.look_at(self.name, self.logs().decode(errors="replace"))
        shutil.rmtree(self._directory, ignore_errors=True)

    def _tell(self):
        """Have each process of a node write into the log what its threads are doing."""
        if self._tells and self._group is not None:
            for each in members(self._group):
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGUSR2)
                for _ in counted(0.2):  # one after the other
                    pass

    def logs(self):
        return self._log.read_bytes()

    def exec_run(self, cmd):
        if cmd == "cat /proc/net/tcp /proc/net/tcp6":
            # The question whether a container listens, in the terms of its own ports.
            return 0, "".join(self._listening()).encode()
        argv = [self._outside(part) for part in (shlex.split(cmd) if isinstance(cmd, str) else cmd)]
        done = subprocess.run(
            argv, cwd=self._cwd, env=self._env, capture_output=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def put_archive(self, path, data):
        fileobj = io.BytesIO(data) if isinstance(data, bytes) else data
        with tarfile.open(fileobj=fileobj) as archive:
            archive.extractall(self._binds[path], filter="data")
        return True

    def _listening(self):
        for inside, outside in self._ports.items():
            if listens(outside):
                yield f"0: 00000000:{int(inside.split('/')[0]):04X} 00000000:0000 0A\n"

    def _wait_for_ports(self):
        for _ in counted(60):
            if all(map(listens, self._ports.values())):
                return
            if self._process.poll() is not None:
                break
        text = self.logs().decode(errors="replace")
        raise RuntimeError(f"{self._argv[0]} does not listen on {self._ports}:\n{text}")

    def _sweep(self):
        """Kill the group once: afterwards its number may be somebody else's."""
        group, self._group = self._group, None
        if group is None:
            return
        self._paused = False
        swept = members(group)
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self._process.wait()
        # What outlives its parent waits for pid 1 to collect it, and no longer runs.
        for _ in counted(10):
            if not any(map(runs, swept)):
                return
        raise RuntimeError(f"{self.name}: processes survive SIGKILL: {swept}")

    def _outside(self, text):
        # In one pass: the outside paths may themselves hold inside ones.
        inside = "|".join(re.escape(path) for path in self._binds)
        return re.sub(
            rf"(?<![\w/.])({inside})(?=[/:;,\s'\"]|$)", lambda m: self._binds[m[1]], str(text)
        )

    def _environment(self, given):
        kept = ("PATH", "HOME", "LANG", "COVERAGE_PROCESS_START")
        base = {key: os.environ[key] for key in kept if key in os.environ}
        interpreter = str(Path(sys.executable).parent)
        base["PATH"] = os.pathsep.join((interpreter, base.get("PATH", os.defpath)))
        return base | given


def _number(wanted):
    if wanted is None:
        return signal.SIGKILL
    if isinstance(wanted, str) and not wanted.isdigit():
        return signal.Signals[wanted if wanted.startswith("SIG") else f"SIG{wanted}"]
    return signal.Signals(int(wanted))

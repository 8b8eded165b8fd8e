"""The servers that pytest-celery asks for as images, as programs of this machine."""

import os
import shutil
import subprocess
from pathlib import Path

from celery_atomicity.testing import find_server, free_port

RABBITMQ_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one on PATH changes user


def service_for(image):
    """Return what runs *image* here, or None: then it is a node, which brings its command."""
    return {"redis": Redis, "rabbitmq": RabbitMQ}.get(image.partition(":")[0])


class Redis:
    @staticmethod
    def program(command, port, directory):
        # Nodes are given 127.0.0.1, while the tests are given localhost: both names are served.
        place = ["--port", str(port), "--bind", "127.0.0.1", "-::1", "--dir", str(directory)]
        return [str(find_server()), *command[1:], *place], {}

    @staticmethod
    def clean_up(_env):
        pass


class RabbitMQ:
    @staticmethod
    def program(_command, port, directory):
        home = directory / "rabbitmq"
        home.mkdir()
        (home / "plugins").write_text("[].")
        return [str(RABBITMQ_SERVER)], {
            "HOME": str(home),
            "RABBITMQ_NODENAME": f"test-{directory.name}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(home / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            # A name server of its own, which may be told to end while a node is registered.
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",
        }

    @staticmethod
    def clean_up(env):
        # The name server has left the process group.
        if shutil.which("epmd"):
            subprocess.run(
                ["epmd", "-port", env["ERL_EPMD_PORT"], "-kill"],
                env=os.environ | env,
                capture_output=True,
                check=False,
            )

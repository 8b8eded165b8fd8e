"""The servers that pytest-celery asks for as images, as programs of this machine."""

import shlex
from pathlib import Path

from celery_atomicity.testing import dies_with_us, find_server, free_port

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


class RabbitMQ:
    @staticmethod
    def program(_command, port, directory):
        home = directory / "rabbitmq"
        home.mkdir()
        (home / "plugins").write_text("[].")
        # Both in the foreground, the name server as a child: they end with what started them.
        name_server = shlex.join([*dies_with_us(), "epmd"])
        script = f'{name_server} -port "$ERL_EPMD_PORT" & exec {RABBITMQ_SERVER}'
        return ["sh", "-c", script], {
            "RUNNING_UNDER_SYSTEMD": "1",  # no shell stays above the server, waiting for it
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
            "ERL_EPMD_PORT": str(free_port()),
        }

"""
The part of docker-py that pytest-celery uses, on processes instead of containers.

A "container" is a process group with a directory of its own. So all of pytest-celery's fixtures
and classes work unchanged on real servers and Celery nodes, on machines without Docker. It is
given to them in place of docker-py's client, by the fixture ``docker_client``.
"""

import shutil

from support.proccontainer import ProcessContainer


class Thing:
    """A network, a volume or an image: a name, and a directory where it needs one."""

    def __init__(self, name, directory=None):
        self.id = self.name = name
        self.attrs = {"Labels": {}}
        self._directory = directory

    def remove(self, *_args, **_options):
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


class Containers:
    def __init__(self, root):
        self._root = root

    def create(self, image, **options):
        return ProcessContainer(self._root, image, **options)

    def run(self, image, **options):
        container = self.create(image, **options)
        container.start()
        return container


class Networks:
    def create(self, name, **_options):
        return Thing(name)


class Images:
    def build(self, *, tag="scratch", **_options):
        return Thing(tag), []


class Volumes:
    def __init__(self, root):
        self._root = root

    def create(self, name, **_options):
        directory = self._root / name
        directory.mkdir()
        # What containers are given as their volume is its name: here, that leads there.
        return Thing(str(directory), directory)


class ProcessDockerClient:
    """Stands for ``docker.DockerClient``; everything it makes lives under *root*."""

    def __init__(self, root):
        self.containers = Containers(root)
        self.networks = Networks()
        self.images = Images()
        self.volumes = Volumes(root)

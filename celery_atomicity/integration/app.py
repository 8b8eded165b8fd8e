"""Installing everything on a Celery app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from celery import current_app
from celery.exceptions import ImproperlyConfigured
from celery.local import Proxy

from celery_atomicity import events
from celery_atomicity.atom import Atom, arbiter_of
from celery_atomicity.errors import AtomicityError, InvalidSetting, NotConfigured
from celery_atomicity.primitives.lease import held
from celery_atomicity.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from celery import Celery

    from celery_atomicity.atom import Arbiter
    from celery_atomicity.connection import Clients
    from celery_atomicity.primitives.lease import Lease

_INSTALLED = "_atomicity"

# What the settings are made of; some of Celery's are properties that also read its environment.
_NAMES = (
    *(f"atomicity_{name}" for name in Settings.NAMES),
    "result_backend",
    "redis_backend_use_ssl",
    "result_backend_transport_options",
    "broker_url",
    "broker_use_ssl",
    "broker_transport_options",
)


class Atomicity:
    """
    The plugin on one Celery app: bootstep, remote control, command and settings.

    Installing it twice is installing it once; further *groups* add up. Nothing is read or
    connected before it is used or a worker or beat starts.

    Args:
        app: Gets everything.
        groups: Further groups in which each worker of the app takes part.
    """

    app: Celery
    groups: tuple[str, ...]

    def __new__(cls, app: Celery, *, groups: Iterable[str] = ()) -> Atomicity:
        """Install on *app*, or give what is installed."""
        found = app.__dict__.get(_INSTALLED)
        if found is None:
            found = super().__new__(cls)
            found._install(app)
            app.__dict__[_INSTALLED] = found
        found.groups = tuple(dict.fromkeys((*found.groups, *groups)))
        return cast("Atomicity", found)

    def _install(self, app: Celery) -> None:
        # Here, since these know Atomicity.
        from celery_atomicity.integration import metrics, standing, worker  # noqa: PLC0415

        self.app = app
        self.groups = ()
        self._settings: Settings | None = None
        self._arbiter: Arbiter | None = None
        self._atoms: dict[str, Atom] = {}
        self._announced = False
        # Made here, and so before whatever a worker forks.
        self.standing = standing.Standing()
        worker.install(app)
        metrics.measure_by_default()

    @classmethod
    def of(cls, app: Celery) -> Atomicity:
        """
        What is installed on *app*.

        Raises:
            NotConfigured: Nothing is.
        """
        found = app.__dict__.get(_INSTALLED)
        if found is None:
            raise NotConfigured(
                f"Atomicity is not installed on the Celery app {app.main or 'celery'!r}: write "
                "Atomicity(app) where the app is made, before its tasks run."
            )
        return cast("Atomicity", found)

    @property
    def settings(self) -> Settings:
        """
        The app's settings, read once.

        Raises:
            ImproperlyConfigured: One of them cannot work; it says which, and the remedy.
        """
        if self._settings is None:
            conf = {name: getattr(self.app.conf, name, None) for name in _NAMES}
            try:
                self._settings = Settings.read(conf, main=self.app.main)
            except InvalidSetting as error:
                raise ImproperlyConfigured(str(error)) from error
        return self._settings

    @property
    def clients(self) -> Clients:
        """The connections of this process to the app's arbiter."""
        if self._arbiter is None:
            self._arbiter = arbiter_of(self.settings)
        return self._arbiter.clients

    def atom(self, group: str | None = None) -> Atom:
        """
        The decisions of *group*, by default the app's own; one object per group and process.

        Raises:
            ImproperlyConfigured: A setting, or the name, cannot work.
        """
        name = self.settings.group if group is None else group
        found = self._atoms.get(name)
        if found is None:
            try:
                found = self._atoms[name] = Atom(name, settings=self.settings)
            except InvalidSetting as error:
                raise ImproperlyConfigured(str(error)) from error
        return found

    def atoms_of_workers(self) -> list[Atom]:
        """The decisions of each group in which the workers of the app take part."""
        return [self.atom(name) for name in dict.fromkeys((self.settings.group, *self.groups))]

    def announce(self) -> None:
        """Log once which addresses are used and where they come from, and what looks odd."""
        if self._announced:
            return
        self._announced = True
        settings = self.settings
        if settings.configured:
            events.started.tell(
                group=settings.group,
                addresses=" ".join(map(str, settings.addresses)),
                source=settings.source,
            )
        else:
            events.started_off.tell()
        for advice in settings.warnings():
            events.setting_is_odd.tell(advice=advice)


def _current_atom() -> Atom:
    return Atomicity.of(current_app._get_current_object()).atom()  # noqa: SLF001 - a proxy's own


def _current_lease() -> Lease:
    leases = held.get()
    if not leases:
        raise AtomicityError(
            "No lease is held here: current_lease is the innermost one of the running task under "
            "@singleton_by, or of the surrounding 'with current_atom.lock(...)' block."
        )
    return leases[-1]


class _Proxy(Proxy):
    """The current object; where there is none, those who only look (test collectors) may."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        try:
            return type(self._get_current_object())
        except AtomicityError:
            return Proxy


current_atom: Atom = cast("Atom", _Proxy(_current_atom))
"""
The atom of the current app's own group.

A proxy: every use looks for the current app anew, and raises *NotConfigured* where that has no
`Atomicity`.
"""

current_lease: Lease = cast("Lease", _Proxy(_current_lease))
"""
The innermost lease that the running task or ``with`` block holds.

A proxy: every use outside of one raises *AtomicityError*.
"""

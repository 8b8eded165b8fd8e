"""Standing down on request: a worker gives up its slots, and goes on with its tasks."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from celery.worker.control import control_command

from celery_atomicity import events
from celery_atomicity.integration.app import Atomicity

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.atom import Atom

#: What ``inspect`` says of a worker that does.
REASON = "it stands down on request, until `celery control atomicity_resume`"


class Standing:
    """
    Whether the replicas of a worker stand down, as it and the beat embedded in it know it.

    That beat is a process of its own, which no remote control reaches. It was forked, though, so it
    reads what is written here, in memory that both share.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 1)

    @property
    def is_down(self) -> bool:
        """Whether they do."""
        return self._page[0] == 1

    def change(self, *, down: bool) -> bool:
        """Stand down, or no longer; False if it was so before."""
        changed = self.is_down is not down
        self._page[0] = int(down)
        return changed


@control_command()
def atomicity_stand_down(state: Any, **_options: Any) -> dict[str, str]:
    """
    Give up all slots, and the ticks of a beat embedded with -B, until atomicity_resume.

    Tasks go on, and so do locks and limits. A worker that is started anew takes part again.
    """
    names = _change(state, down=True, act=lambda atom: atom.close())
    return {"ok": f"owns nothing in {', '.join(names)} until atomicity_resume"}


@control_command()
def atomicity_resume(state: Any, **_options: Any) -> dict[str, str]:
    """Take part again, after atomicity_stand_down."""
    names = _change(state, down=False, act=lambda atom: atom.open())
    return {"ok": f"takes part in {', '.join(names)}, and owns slots once the group has settled"}


def _change(state: Any, *, down: bool, act: Callable[[Atom], None]) -> list[str]:
    atomicity = Atomicity.of(state.app)
    atoms = atomicity.atoms_of_workers()
    names = [atom.group for atom in atoms]
    changed = atomicity.standing.change(down=down)
    for atom in atoms:
        act(atom)
    if changed:
        event = events.stood_down if down else events.resumed
        event.tell(groups=", ".join(names))
    return names

"""What a type checker sees through ``singleton_by``; run through mypy --strict, never executed."""

from collections.abc import Callable

from typing_extensions import assert_type

from celery_atomicity import singleton_by


@singleton_by("{account_id}", on_conflict="skip", wait=1.5)
def sync(account_id: int, mode: str = "full") -> bool:
    """A task's function, which keeps its own signature."""
    return bool(account_id and mode)


assert_type(sync(5), bool)
assert_type(sync(account_id=5, mode="fast"), bool)
sync("5")  # type: ignore[arg-type]
sync(5, speed="fast")  # type: ignore[call-arg]


class Report:
    """A class-based task keeps its methods."""

    @singleton_by(["{tenant}", lambda tenant: tenant], min_hold=10)
    def run(self, tenant: str) -> list[str]:
        return [tenant]


assert_type(Report().run("a"), list[str])
Report().run(1)  # type: ignore[arg-type]


def nothing(x: float) -> None: ...


decorated: Callable[[float], None] = singleton_by("all")(nothing)

singleton_by(5)  # type: ignore[arg-type]
singleton_by("all", "skip")  # type: ignore[call-arg]
singleton_by("all", on_conflict="skp")  # type: ignore[arg-type]
singleton_by("all", on_lost="die")  # type: ignore[arg-type]

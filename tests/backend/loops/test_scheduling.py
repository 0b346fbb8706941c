"""The scheduling loop: what a pass is told, where, and what is left when one fails."""

from __future__ import annotations

from dataclasses import fields
from threading import get_ident

from hai_backend.domain.task import Task
from hai_backend.testing import a_task
from hai_backend.testing.world import World


class Seen(Task):
    """Notes who looks at it."""

    threads: set[int] = set()  # noqa: RUF012 - of all of them

    @property
    def waiting(self) -> bool:
        self.threads.add(get_ident())
        return True


async def test_tasks_are_looked_at_in_the_thread_of_the_pass(world: World) -> None:
    """After a start these are all."""
    task = a_task(7)
    seen = Seen(**{field.name: getattr(task, field.name) for field in fields(task)})
    world.scheduling.changed(seen)
    await world.scheduling.once()
    assert seen.threads
    assert get_ident() not in seen.threads

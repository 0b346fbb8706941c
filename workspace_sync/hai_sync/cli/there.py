"""Which files of the cluster a command is about: of a revision, or of the directory that a task has of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from hai.client.errors import NotFound
from hai_sync.core.entry import DIRECTORY, Tree, ancestors
from hai_sync.session.session import Session

TASK = click.option("--task", type=click.IntRange(1), metavar="ID", help="What this task wrote.")
_REVISION = click.option(
    "-r", "--revision", type=click.IntRange(1), help="As it was then; else as it is now."
)


@dataclass(frozen=True, slots=True)
class There:
    """A revision, 0 for what is there now; or a task."""

    revision: int
    task: int

    async def tree(self, session: Session) -> tuple[int, Tree]:
        """The revision's number, 0 for a task, and all that is in it. Raises NotFound."""
        if not self.task:
            return await session.remote.tree({}, 0, self.revision)
        written = await session.remote.written(self.task)
        return 0, {a: DIRECTORY for path in written for a in ancestors(path)} | written

    def nothing(self, what: str) -> NotFound:
        """An error for paths that are not there."""
        where = f"that task {self.task} wrote" if self.task else "on the cluster"
        return NotFound(f"nothing {where} is called {what}")


def there(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which; `there_of` reads them."""
    return _REVISION(TASK(command))


def there_of(revision: int | None, task: int | None) -> There:
    """Raises click.UsageError for both."""
    if revision and task:
        raise click.UsageError("say --revision or --task: a task has no revisions")
    return There(revision or 0, task or 0)

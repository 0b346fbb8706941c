"""Which files of the cluster a command is about: of a revision, or of the directory that a task has of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from hai.client.errors import NotFound
from hai_sync.core.entry import DIRECTORY, Tree, ancestors
from hai_sync.session.session import Session

_NUMBER = re.compile(r"[1-9][0-9]{0,14}")
_TAG = re.compile(r"(?![0-9]+$)[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Revision(click.ParamType[str]):
    """A number, or a tag; both stay text until the server is asked."""

    name = "number or tag"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises click.BadParameter."""
        if not (_NUMBER.fullmatch(value) or _TAG.fullmatch(value)):
            self.fail(f"{value!r} is neither a revision's number nor a tag", param, ctx)
        return str(value)


_HINT = "a PATH is as seen from where you stand; `haiworkspace ls` lists what is there"
_TASK = click.option("--task", type=click.IntRange(1), metavar="ID", help="What this task wrote.")
_REVISION = click.option(
    "-r", "--revision", type=Revision(), help="As it was then; else as it is now."
)


@dataclass(frozen=True, slots=True)
class RemoteSelector:
    """A revision, empty for what is there now; or a task."""

    revision: str
    task: int

    async def tree(self, session: Session) -> tuple[int, Tree]:
        """The revision's number, 0 for a task, and all that is in it. Raises NotFound."""
        if not self.task:
            number = await session.remote.number_of(self.revision or "0")
            return await session.remote.tree({}, 0, number)
        written = await session.remote.written(self.task)
        return 0, {a: DIRECTORY for path in written for a in ancestors(path)} | written

    def nothing(self, what: str) -> NotFound:
        """An error for paths that are not there."""
        then = f"in revision {self.revision}" if self.revision else "on the cluster"
        where = f"that task {self.task} wrote" if self.task else then
        return NotFound(f"nothing {where} is called {what}", hint=_HINT)


def there(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which; `there_of` reads them."""
    return _REVISION(_TASK(command))


def there_of(revision: str | None, task: int | None) -> RemoteSelector:
    """Raises click.UsageError for both."""
    if revision and task:
        raise click.UsageError("say --revision or --task: a task has no revisions")
    return RemoteSelector(revision or "", task or 0)

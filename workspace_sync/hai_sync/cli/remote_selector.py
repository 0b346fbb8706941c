"""Selects the remote files of a command: those of a revision, or those that a task wrote."""

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
    """A revision number or a tag, which the server resolves later."""

    name = "number or tag"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return a valid value. Raises click.BadParameter."""
        if not (_NUMBER.fullmatch(value) or _TAG.fullmatch(value)):
            self.fail(f"{value!r} is neither the number of a revision nor a tag", param, ctx)
        return str(value)


_HINT = "a PATH is relative to the current directory; `haiworkspace ls` lists files"
_TASK = click.option(
    "--task", type=click.IntRange(1), metavar="ID", help="Files that this task wrote."
)
_REVISION = click.option(
    "-r",
    "--revision",
    type=Revision(),
    help="Files of this revision; by default the current files.",
)


@dataclass(frozen=True, slots=True)
class RemoteSelector:
    """A revision or a task. An empty revision means the files on the cluster now."""

    revision: str
    task: int

    async def tree(self, session: Session) -> tuple[int, Tree]:
        """Return the number of the revision (0 for a task) and the tree. Raises NotFound."""
        if not self.task:
            number = await session.remote.resolve_revision(self.revision or "0")
            return await session.remote.tree({}, 0, number)
        files = await session.remote.task_files(self.task)
        return 0, {a: DIRECTORY for path in files for a in ancestors(path)} | files

    def not_found(self, description: str) -> NotFound:
        """Return the error about missing paths."""
        revision_text = f"in revision {self.revision}" if self.revision else "on the cluster"
        where = f"that task {self.task} wrote" if self.task else revision_text
        return NotFound(f"nothing {where} is called {description}", hint=_HINT)


def remote_selector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --revision and --task, from which `select_remote` makes a selector."""
    return _REVISION(_TASK(command))


def select_remote(revision: str | None, task: int | None) -> RemoteSelector:
    """Return the selector of the options. Raises click.UsageError if both are given."""
    if revision and task:
        raise click.UsageError(
            "--revision and --task are mutually exclusive: a task has no revisions"
        )
    return RemoteSelector(revision or "", task or 0)

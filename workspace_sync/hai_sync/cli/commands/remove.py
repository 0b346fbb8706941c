"""`haiworkspace remove NAME`."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import click

from hai.client.connection.transport import Connection
from hai.client.errors import Conflict, HaiError, NotFound, UsageError
from hai_sync.cli.options import common
from hai_sync.cli.reporting import Progress, printable
from hai_sync.cli.session_factory import pattern, with_connection
from hai_sync.core.diff import Change, in_order
from hai_sync.core.entry import Tree, below
from hai_sync.core.names import fault
from hai_sync.index import Index
from hai_sync.remote.endpoint import Remote, author, client_id
from hai_sync.remote.uploader import Order, push
from hai_sync.session.lock import locked
from hai_sync.workspace_dir import WorkspaceDir, find


@click.command()
@click.argument("name")
@click.option("-f", "--files", multiple=True, metavar="PATH", help="Only these; globs work.")
@click.option(
    "--task",
    "tasks",
    type=click.IntRange(1),
    multiple=True,
    metavar="ID",
    help="Only what this task wrote.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Print what would go.")
@common
def remove(
    name: str,
    files: tuple[str, ...],
    tasks: tuple[int, ...],
    yes: bool,
    dry_run: bool,
    **options: Any,
) -> int:
    """Remove the workspace NAME from the cluster, some files of it, or what tasks wrote. Nothing here is touched."""
    profile = options["profile"]
    if files and tasks:
        raise click.UsageError("say --files or --task")
    if tasks:
        return _remove_of_tasks(profile, name, tasks, yes, dry_run)
    if not files:
        if dry_run:
            click.echo(f"the workspace {name} with all its files and revisions")
            return 0
        _confirm(yes, f"Remove the workspace {name} with all its files on the cluster?")
        with_connection(profile, lambda connection: Remote(connection, name).delete())
        click.echo(f"the workspace {name} is removed from the cluster; your files here stay")
        return 0
    wanted = _patterns(name, files)
    gone = with_connection(profile, lambda connection: _chosen(connection, name, wanted))
    if dry_run or not gone:
        for path in gone:
            click.echo(printable(path))
        return 0 if gone else _nothing(files)
    _confirm(yes, f"Remove {len(gone)} paths of {name} on the cluster?")
    with_connection(profile, lambda connection: _remove(connection, name, wanted))
    click.echo(f"{len(gone)} paths are removed; `haiworkspace restore` brings them back")
    return 0


def _remove_of_tasks(
    profile: str | None, name: str, tasks: Sequence[int], yes: bool, dry_run: bool
) -> int:
    """Of several: each that can be removed is, also where another one cannot."""
    if dry_run:
        click.echo("\n".join(f"what task {task} wrote" for task in tasks))
        return 0
    _confirm(yes, f"Remove what task {', '.join(map(str, tasks))} wrote? It cannot be restored.")

    async def work(connection: Connection) -> list[HaiError]:
        refused: list[HaiError] = []
        for task in tasks:
            try:
                await Remote(connection, name).delete_task_tree(task)
                click.echo(f"what task {task} wrote is removed")
            except (NotFound, Conflict) as error:
                refused.append(error)
        return refused

    refused = with_connection(profile, work)
    if len(tasks) == 1 and refused:
        raise refused[0]
    for error in refused:
        click.echo(f"haiworkspace: {error.message}", err=True)
    return 1 if refused else 0


def _patterns(name: str, files: Sequence[str]) -> tuple[str, ...]:
    """In the workspace itself as seen from where we stand, elsewhere from its root. Raises UsageError."""
    place = _here()
    if place is not None and place.name == name:
        return tuple(pattern(place, path) for path in files)
    if wrong := [path for path in files if fault(path.rstrip("/"))]:
        raise UsageError(f"{wrong[0]!r} is no path inside a workspace")
    return tuple(files)


def _nothing(files: Sequence[str]) -> int:
    raise NotFound(
        f"nothing on the cluster is called {' or '.join(files)}",
        hint="a PATH is as seen from where you stand; of another workspace than this from its root",
    )


def _confirm(yes: bool, question: str) -> None:
    """Ask a person; a script must have said --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is there to say so", hint="say --yes")
    click.confirm(question, abort=True, err=True)


async def _chosen(connection: Connection, name: str, files: Sequence[str]) -> list[str]:
    _, tree = await Remote(connection, name).tree({}, 0)
    return matching(tree, files)


def matching(tree: Tree, patterns: Sequence[str]) -> list[str]:
    """Paths that fit, with all that lies below them."""
    tops = [p for p in tree if any(fnmatch.fnmatchcase(p, each.rstrip("/")) for each in patterns)]
    return sorted({path for path in tree if any(below(path, top) for top in tops)})


async def _remove(connection: Connection, name: str, files: Sequence[str]) -> None:
    remote = Remote(connection, name)
    async with _turn(name) as us, remote.lease("remove", client_id=us) as token:
        revision, tree = await remote.tree({}, 0)
        changes = in_order(Change(path, tree[path], None) for path in matching(tree, files))
        order = Order(_root(), changes, revision, token, author("remove"), allow_many_removals=True)
        await push(remote, order, lambda files, size: None)


@asynccontextmanager
async def _turn(name: str) -> AsyncIterator[str]:
    """Who writes: in a directory of this workspace its client, after other commands; elsewhere one without a name."""
    place = _here()
    if place is None or place.name != name:
        yield ""
        return
    with closing(Index(place.state / "index.sqlite")) as index:
        us = client_id(index.name())
    waits = Progress(as_json=False, quiet=False).stage
    async with locked(place.state, lambda: waits("wait", 0, 0)):
        yield us


def _here() -> WorkspaceDir | None:
    try:
        return find()
    except NotFound:
        return None


def _root() -> Path:
    """Removing reads no files, so that any directory will do."""
    place = _here()
    return Path.cwd() if place is None else place.root

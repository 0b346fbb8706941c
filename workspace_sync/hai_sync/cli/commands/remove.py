"""The command `haiworkspace remove`."""

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
from hai_sync.cli.options import common_options
from hai_sync.cli.reporting import Progress, printable
from hai_sync.cli.session_factory import relative_pattern, with_connection
from hai_sync.core.diff import Change, order_changes
from hai_sync.core.entry import Tree, is_within
from hai_sync.core.names import path_error
from hai_sync.index import Index
from hai_sync.remote.endpoint import Remote, client_id, describe_process
from hai_sync.remote.uploader import PushRequest, push
from hai_sync.session.lock import lock_workspace
from hai_sync.workspace_dir import find_workspace_or_none


@click.command()
@click.argument("name")
@click.option(
    "-f", "--files", multiple=True, metavar="PATH", help="Remove only these paths; globs work."
)
@click.option(
    "--task",
    "tasks",
    type=click.IntRange(1),
    multiple=True,
    metavar="ID",
    help="Remove only the files that this task wrote.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@common_options
def remove(
    name: str,
    files: tuple[str, ...],
    tasks: tuple[int, ...],
    yes: bool,
    dry_run: bool,
    **options: Any,
) -> int:
    """Remove the workspace NAME from the cluster, or some of its files, or files of tasks. Local files are kept."""
    profile = options["profile"]
    if files and tasks:
        raise click.UsageError("--files and --task are mutually exclusive")
    if tasks:
        return _remove_of_tasks(profile, name, tasks, yes, dry_run)
    if not files:
        if dry_run:
            click.echo(f"the workspace {name} with all its files and revisions")
            return 0
        _confirm(yes, f"Remove the workspace {name} with all its files on the cluster?")
        with_connection(profile, lambda connection: Remote(connection, name).delete())
        click.echo(f"the workspace {name} is removed from the cluster; local files are kept")
        return 0
    patterns = _patterns(name, files)
    removed_paths = with_connection(
        profile, lambda connection: _list_matching(connection, name, patterns)
    )
    if dry_run or not removed_paths:
        for path in removed_paths:
            click.echo(printable(path))
        return 0 if removed_paths else _raise_not_found(files)
    _confirm(yes, f"Remove {len(removed_paths)} paths of {name} on the cluster?")
    with_connection(profile, lambda connection: _remove(connection, name, patterns))
    click.echo(f"{len(removed_paths)} paths are removed; `haiworkspace restore` brings them back")
    return 0


def _remove_of_tasks(
    profile: str | None, name: str, tasks: Sequence[int], yes: bool, dry_run: bool
) -> int:
    """Remove the files of each task, also after a failure for another one."""
    if dry_run:
        click.echo("\n".join(f"the files that task {task} wrote" for task in tasks))
        return 0
    _confirm(
        yes,
        f"Remove the files that task {', '.join(map(str, tasks))} wrote? They cannot be restored.",
    )

    async def work(connection: Connection) -> list[HaiError]:
        refused: list[HaiError] = []
        for task in tasks:
            try:
                await Remote(connection, name).delete_task_tree(task)
                click.echo(f"the files that task {task} wrote are removed")
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
    """Return patterns relative to the root. Raises UsageError.

    In a directory of this workspace, `files` are relative to that directory, else to the root.
    """
    workspace = find_workspace_or_none()
    if workspace is not None and workspace.name == name:
        return tuple(relative_pattern(workspace, path) for path in files)
    if wrong := [path for path in files if path_error(path.rstrip("/"))]:
        raise UsageError(f"{wrong[0]!r} is not a path inside a workspace")
    return tuple(files)


def _raise_not_found(files: Sequence[str]) -> int:
    raise NotFound(
        f"nothing on the cluster is called {' or '.join(files)}",
        hint="a PATH is relative to the current directory, or to the root of another workspace",
    )


def _confirm(yes: bool, question: str) -> None:
    """Ask the user for confirmation. A script must pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} No terminal is attached", hint="confirm with --yes")
    click.confirm(question, abort=True, err=True)


async def _list_matching(connection: Connection, name: str, files: Sequence[str]) -> list[str]:
    _, tree = await Remote(connection, name).tree({}, 0)
    return match_paths(tree, files)


def match_paths(tree: Tree, patterns: Sequence[str]) -> list[str]:
    """Return the paths that match, with everything below them."""
    tops = [p for p in tree if any(fnmatch.fnmatchcase(p, each.rstrip("/")) for each in patterns)]
    return sorted({path for path in tree if any(is_within(path, top) for top in tops)})


async def _remove(connection: Connection, name: str, files: Sequence[str]) -> None:
    """Remove the matching files on the cluster by a push without contents."""
    remote = Remote(connection, name)
    async with _lock_if_current(name) as own_id, remote.lease("remove", client_id=own_id) as token:
        revision, tree = await remote.tree({}, 0)
        changes = order_changes(Change(path, tree[path], None) for path in match_paths(tree, files))
        order = PushRequest(
            _root(), changes, revision, token, describe_process("remove"), allow_many_removals=True
        )
        await push(remote, order, lambda files, size: None)


@asynccontextmanager
async def _lock_if_current(name: str) -> AsyncIterator[str]:
    """Take the lock if the current directory is this workspace. Yield the id of its client, else an empty one."""
    workspace = find_workspace_or_none()
    if workspace is None or workspace.name != name:
        yield ""
        return
    with closing(Index(workspace.index_path)) as index:
        own_id = client_id(index.name())
    on_wait = Progress(as_json=False, quiet=False).stage
    async with lock_workspace(workspace.state_dir, lambda: on_wait("wait", 0, 0)):
        yield own_id


def _root() -> Path:
    """Return a root for the request. Any directory will do, since a removal reads no files."""
    workspace = find_workspace_or_none()
    return Path.cwd() if workspace is None else workspace.root

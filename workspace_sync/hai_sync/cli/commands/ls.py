"""`haiworkspace ls`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from hai.client.text.sizes import size_text
from hai.v1.workspace_pb2 import TaskTree
from hai_sync.cli.options import common, wants_json
from hai_sync.cli.remote_selector import remote_selector_options, select_remote
from hai_sync.cli.reporting import entry_facts, event, printable
from hai_sync.cli.session_factory import relative, with_session
from hai_sync.core.entry import Kind, Tree
from hai_sync.core.listing import Row, list_rows
from hai_sync.session.session import Session


@click.command()
@click.argument("path", default=".")
@remote_selector_options
@click.option("-R", "--recursive", is_flag=True, help="What lies in directories, too.")
@click.option("--tasks", is_flag=True, help="The directories of tasks, and what they take.")
@common
def ls(
    path: str,
    revision: str | None,
    task: int | None,
    recursive: bool,
    tasks: bool,
    **options: Any,
) -> int:
    """What is on the cluster; of a directory the size of all that is in it. Nothing is brought here."""
    if tasks:
        return _tasks(options)
    selector = select_remote(revision, task)

    async def work(session: Session) -> tuple[str, int, Tree]:
        return relative(session.workspace, path), *await selector.tree(session)

    top, number, tree = with_session(options["profile"], work)
    if top and top not in tree:
        raise selector.not_found(repr(top))
    rows = list(list_rows(tree, top, recursive=recursive))
    if wants_json(options):
        event("ls", revision=number, entries=[_facts(row) for row in rows])
        return 0
    for row in rows:
        click.echo(printable(_line(row, top)))
    return 0


def _tasks(options: Mapping[str, Any]) -> int:
    async def work(session: Session) -> list[TaskTree]:
        return [tree async for tree in session.remote.task_trees()]

    found = with_session(options["profile"], work)
    if wants_json(options):
        event("tasks", tasks=[_tree_facts(tree) for tree in found])
        return 0
    for tree in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(tree.create_time.ToSeconds()))
        size, state = size_text(tree.size_bytes), "  has not ended" if tree.unfinished else ""
        click.echo(f"{size:>10}  {when}  task {tree.task} of revision {tree.revision}{state}")
    return 0


def _tree_facts(tree: TaskTree) -> dict[str, Any]:
    return {
        "task": tree.task,
        "revision": tree.revision,
        "bytes": tree.size_bytes,
        "unfinished": tree.unfinished,
        "created": tree.create_time.ToJsonString(),
    }


def _line(row: Row, top: str) -> str:
    entry, name = row.entry, row.path.removeprefix(f"{top}/")
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.mtime_ns // 10**9))
    if entry.kind is Kind.DIRECTORY:
        return f"{size_text(row.size):>10}  {row.files:>10} files  {name}/"
    if entry.kind is Kind.SYMLINK:
        return f"{'':>10}  {'':16}  {name} -> {entry.target}"
    return f"{size_text(row.size):>10}  {when}  {name}"


def _facts(row: Row) -> dict[str, Any]:
    facts = {"path": row.path, **entry_facts(row.entry), "files": row.files, "size": row.size}
    return facts | ({"target": row.entry.target} if row.entry.kind is Kind.SYMLINK else {})

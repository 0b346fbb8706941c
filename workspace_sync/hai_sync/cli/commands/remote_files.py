"""The commands `haiworkspace ls` and `cat`, which show files of the cluster."""

from __future__ import annotations

import shutil
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hai.client.errors import UsageError
from hai.client.text.formatting import size_text
from hai.v1.workspace_pb2 import TaskTree
from hai_sync.cli.options import common_options, wants_json
from hai_sync.cli.remote_selector import RemoteSelector, remote_selector_options, select_remote
from hai_sync.cli.reporting import entry_facts, print_event, printable
from hai_sync.cli.session_factory import relative_path, with_session
from hai_sync.core.entry import Entry, Kind, Tree, ancestors, is_within, parent
from hai_sync.remote.downloader import temporary_copies
from hai_sync.session.session import Session


@click.command()
@click.argument("path", default=".")
@remote_selector_options
@click.option("-R", "--recursive", is_flag=True, help="List the contents of directories too.")
@click.option("--tasks", is_flag=True, help="List the directories of tasks with their sizes.")
@common_options
def ls(
    path: str,
    revision: str | None,
    task: int | None,
    recursive: bool,
    tasks: bool,
    **options: Any,
) -> int:
    """List files on the cluster. The size of a directory is that of all files in it. Nothing is downloaded."""
    if tasks:
        return _tasks(options)
    selector = select_remote(revision, task)

    async def work(session: Session) -> tuple[str, int, Tree]:
        return relative_path(session.workspace, path), *await selector.tree(session)

    top, number, tree = with_session(options["profile"], work)
    if top and top not in tree:
        raise selector.not_found(repr(top))
    rows = list(list_rows(tree, top, recursive=recursive))
    if wants_json(options):
        print_event("ls", revision=number, entries=[_facts(row) for row in rows])
        return 0
    for row in rows:
        click.echo(printable(_line(row, top)))
    return 0


def _tasks(options: Mapping[str, Any]) -> int:
    async def work(session: Session) -> list[TaskTree]:
        return [tree async for tree in session.remote.task_trees()]

    found = with_session(options["profile"], work)
    if wants_json(options):
        print_event("tasks", tasks=[_tree_facts(tree) for tree in found])
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


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@remote_selector_options
@common_options
def cat(paths: tuple[str, ...], revision: str | None, task: int | None, **options: Any) -> int:
    """Print files of the cluster. No file is created here."""
    selector = select_remote(revision, task)
    as_json = wants_json(options)

    async def work(session: Session) -> None:
        number, tree = await selector.tree(session)
        names = [relative_path(session.workspace, path) for path in paths]
        _require_files(selector, tree, names)
        files = {name: tree[name] for name in names}
        async with temporary_copies(session.remote, number, files, selector.task) as path_of:
            for name in names:
                _print_file(name, path_of(name), as_json)

    with_session(options["profile"], work)
    return 0


def _require_files(selector: RemoteSelector, tree: Tree, names: Sequence[str]) -> None:
    """Raise NotFound or UsageError with all wrong names."""
    if missing := [name for name in names if name not in tree]:
        raise selector.not_found(" or ".join(map(repr, missing)))
    if others := [name for name in names if tree[name].kind is not Kind.FILE]:
        kinds = [f"{name!r} ({tree[name].kind.name.lower()})" for name in others]
        raise UsageError(f"not a file: {', '.join(kinds)}", hint="`haiworkspace ls` lists files")


def _print_file(name: str, content: Path, as_json: bool) -> None:
    if as_json:
        print_event("cat", path=name, base64=b64encode(content.read_bytes()).decode())
        return
    with content.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Row:
    """A path with the number and bytes of all files at or below it."""

    path: str
    entry: Entry
    files: int
    size: int


def list_rows(tree: Tree, top: str, *, recursive: bool = False) -> Iterator[Row]:
    """Yield rows of the members of `top` by name, or the row of `top` itself if it is a file.

    An empty `top` is the root. With `recursive`, yield rows of all paths below `top`.
    """
    inside = {path: entry for path, entry in tree.items() if not top or is_within(path, top)}
    files, sizes = Counter[str](), Counter[str]()
    for path, entry in inside.items():
        if entry.kind is Kind.FILE:
            for each in (path, *ancestors(path)):
                files[each] += 1
                sizes[each] += entry.size
    for path in sorted(inside, key=lambda path: path.split("/")):
        if _is_listed(tree, path, top) or (recursive and path != top):
            yield Row(path, inside[path], files[path], sizes[path])


def _is_listed(tree: Tree, path: str, top: str) -> bool:
    if path == top:
        return tree[top].kind is not Kind.DIRECTORY
    return parent(path) == top

"""`haiworkspace download PATH`: files of the cluster, without a sync."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from hai.client.errors import NotFound
from hai_sync.cli.opening import with_session
from hai_sync.cli.options import common
from hai_sync.cli.remove import matching
from hai_sync.cli.sizes import size_of
from hai_sync.cli.telling import Progress, event
from hai_sync.core.diff import only_mode
from hai_sync.core.entry import Kind, Tree
from hai_sync.place import TEMPORARY
from hai_sync.remote.fetching import Download, fetch
from hai_sync.session.downloading import landing
from hai_sync.session.lock import locked
from hai_sync.session.session import Session


@click.command()
@click.argument("path", default="checkpoint")
@click.option("--to", "target", type=click.Path(file_okay=False), help="Where to put it.")
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("-s", "--sync_timeout", type=click.IntRange(5, 21_600), metavar="SECONDS")
@common
def download(
    path: str, target: str | None, force: bool, sync_timeout: int | None, **options: Any
) -> int:
    """Get a file, a directory or what fits a pattern from the cluster. PATH is `checkpoint` unless given."""
    as_json = options["as_json"] or options["output"] == "json"
    progress = Progress(as_json, quiet=False)

    place = Path(os.path.realpath(target)) if target else None

    async def work(session: Session) -> tuple[int, int]:
        async with asyncio.timeout(sync_timeout):
            return await _download(session, path, place or session.place.root, force, progress)

    files, size = with_session(options["profile"], work, progress)
    progress.end()
    if as_json:
        event("done", files=files, bytes=size)
    else:
        click.echo(f"{files} files, {size_of(size)}")
    return 0


async def _download(
    session: Session, path: str, target: Path, force: bool, progress: Progress
) -> tuple[int, int]:
    """One at a time: what arrives waits where a pull's does."""
    async with locked(session.place.state, lambda: progress.stage("wait", 0, 0)):
        revision, tree = await session.remote.tree({}, 0)
        chosen = {p: tree[p] for p in matching(tree, [path])}
        if not chosen:
            raise NotFound(f"nothing on the cluster is called {path!r}")
        with landing(session.place, target) as there:
            changes = await asyncio.to_thread(there.look, chosen)
            there.require_room(changes, force)
            lacking = {c.path for c in changes if not only_mode(c)}
            wanted = {p: e for p, e in _files(chosen).items() if there.path(p) in lacking}
            contents = Download(revision, wanted, session.place.own / TEMPORARY)
            await _fetch(session, contents, progress)
            await asyncio.to_thread(there.place, changes, contents)
    return len(_files(chosen)), _size(_files(chosen))


async def _fetch(session: Session, contents: Download, progress: Progress) -> None:
    progress.stage("download", len(contents.files), _size(contents.files))
    await fetch(session.remote, contents, progress.progress)


def _files(tree: Tree) -> Tree:
    return {path: entry for path, entry in tree.items() if entry.kind is Kind.FILE}


def _size(files: Tree) -> int:
    return sum(entry.size for entry in files.values())

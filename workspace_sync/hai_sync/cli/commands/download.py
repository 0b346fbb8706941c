"""The command `haiworkspace download`: fetches files of the cluster, without a sync."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hai.client.text.formatting import size_text
from hai_sync.cli.commands.remove import match_paths
from hai_sync.cli.options import common_options, wants_json
from hai_sync.cli.remote_selector import RemoteSelector, remote_selector_options, select_remote
from hai_sync.cli.reporting import Progress, print_event
from hai_sync.cli.session_factory import relative_pattern, with_session
from hai_sync.core.diff import changes_only_mode
from hai_sync.core.entry import Kind, Tree
from hai_sync.core.ignore import Ignore, default_rules
from hai_sync.remote.downloader import Download, count_remaining, fetch_contents
from hai_sync.session.download import open_target
from hai_sync.session.lock import lock_workspace
from hai_sync.session.session import Session
from hai_sync.workspace_dir import TEMPORARY


@click.command()
@click.argument("path", required=False)
@remote_selector_options
@click.option(
    "--to",
    "target",
    type=click.Path(file_okay=False),
    help="The directory into which files are downloaded.",
)
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("-s", "--sync_timeout", type=click.IntRange(5, 21_600), metavar="SECONDS")
@common_options
def download(
    path: str | None,
    revision: str | None,
    task: int | None,
    target: str | None,
    force: bool,
    sync_timeout: int | None,
    **options: Any,
) -> int:
    """Download a file, a directory, or all paths that match a pattern, from the cluster.

    PATH is relative to the current directory. The default is `checkpoint` in the workspace. A task that ran on a
    revision wrote into a directory of its own: with --task PATH is in there, as if that were the workspace, and
    without PATH it is all that the task wrote, but for caches.
    """
    as_json = wants_json(options)
    progress = Progress(as_json, quiet=False)

    destination = Path(os.path.realpath(target)) if target else None
    selection = Selection(path, select_remote(revision, task))

    async def work(session: Session) -> tuple[int, int]:
        async with asyncio.timeout(sync_timeout):
            return await _download(
                session, selection, destination or session.workspace.root, force, progress
            )

    files, size = with_session(options["profile"], work, progress)
    progress.end()
    if as_json:
        print_event("done", files=files, bytes=size)
    else:
        click.echo(f"{files} files, {size_text(size)}")
    return 0


@dataclass(frozen=True, slots=True)
class Selection:
    path: str | None
    selector: RemoteSelector

    async def find(self, session: Session) -> tuple[int, Tree]:
        """Return the revision, and the matching part of its tree. Raises NotFound."""
        revision, tree = await self.selector.tree(session)
        if self.selector.task and self.path is None:
            return revision, _without_caches(tree)
        path_pattern = (
            "checkpoint" if self.path is None else relative_pattern(session.workspace, self.path)
        )
        chosen = {p: tree[p] for p in match_paths(tree, [path_pattern])}
        if not chosen:
            raise self.selector.not_found(repr(self.path or path_pattern))
        return revision, chosen


def _without_caches(tree: Tree) -> Tree:
    rules = Ignore(defaults=default_rules())
    return {p: e for p, e in tree.items() if not rules.is_hidden(p, e.kind is Kind.DIRECTORY)}


async def _download(
    session: Session, selection: Selection, target: Path, force: bool, progress: Progress
) -> tuple[int, int]:
    """Download under the lock, since contents are staged in the same directory as those of a pull."""
    async with lock_workspace(session.workspace.state_dir, lambda: progress.stage("wait", 0, 0)):
        revision, chosen = await selection.find(session)
        with open_target(session.workspace, target) as target_dir:
            changes = await asyncio.to_thread(target_dir.plan, chosen)
            target_dir.require_replaceable(changes, force)
            missing = {c.path for c in changes if not changes_only_mode(c)}
            files = {p: e for p, e in _files(chosen).items() if target_dir.path(p) in missing}
            folder = session.workspace.private_dir / TEMPORARY
            contents = Download(revision, files, folder, task=selection.selector.task)
            await _fetch(session, contents, progress)
            await asyncio.to_thread(target_dir.apply, changes, contents)
    return len(_files(chosen)), _size(_files(chosen))


async def _fetch(session: Session, contents: Download, progress: Progress) -> None:
    progress.stage("download", *count_remaining(contents))
    await fetch_contents(session.remote, contents, progress.progress)


def _files(tree: Tree) -> Tree:
    return {path: entry for path, entry in tree.items() if entry.kind is Kind.FILE}


def _size(files: Tree) -> int:
    return sum(entry.size for entry in files.values())

"""`haiworkspace cat`."""

from __future__ import annotations

import shutil
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hai.client.errors import UsageError
from hai_sync.cli.options import common, wants_json
from hai_sync.cli.remote_selector import RemoteSelector, remote_selector_options, select_remote
from hai_sync.cli.reporting import event
from hai_sync.cli.session_factory import relative, with_session
from hai_sync.core.entry import Kind, Tree
from hai_sync.remote.downloader import temporary_copies
from hai_sync.session.session import Session


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@remote_selector_options
@common
def cat(paths: tuple[str, ...], revision: str | None, task: int | None, **options: Any) -> int:
    """Print files of the cluster. Nothing is left here."""
    selector = select_remote(revision, task)
    as_json = wants_json(options)

    async def work(session: Session) -> None:
        number, tree = await selector.tree(session)
        names = [relative(session.workspace, path) for path in paths]
        _require_files(selector, tree, names)
        files = {name: tree[name] for name in names}
        async with temporary_copies(session.remote, number, files, selector.task) as path_of:
            for name in names:
                _print_file(name, path_of(name), as_json)

    with_session(options["profile"], work)
    return 0


def _require_files(selector: RemoteSelector, tree: Tree, names: Sequence[str]) -> None:
    """Raises NotFound or UsageError that lists all wrong names."""
    if missing := [name for name in names if name not in tree]:
        raise selector.not_found(" or ".join(map(repr, missing)))
    if others := [name for name in names if tree[name].kind is not Kind.FILE]:
        kinds = [f"{name!r} ({tree[name].kind.name.lower()})" for name in others]
        raise UsageError(
            f"no file: {', '.join(kinds)}", hint="`haiworkspace ls` lists what there is"
        )


def _print_file(name: str, content: Path, as_json: bool) -> None:
    if as_json:
        event("cat", path=name, base64=b64encode(content.read_bytes()).decode())
        return
    with content.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.flush()

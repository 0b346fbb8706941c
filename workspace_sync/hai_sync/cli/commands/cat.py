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
from hai_sync.cli.options import common
from hai_sync.cli.remote_selector import RemoteSelector, there, there_of
from hai_sync.cli.reporting import event
from hai_sync.cli.session_factory import relative, with_session
from hai_sync.core.entry import Kind, Tree
from hai_sync.remote.downloader import borrowed
from hai_sync.session.session import Session


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@there
@common
def cat(paths: tuple[str, ...], revision: str | None, task: int | None, **options: Any) -> int:
    """Print files of the cluster. Nothing is left here."""
    wanted = there_of(revision, task)
    as_json = options["as_json"] or options["output"] == "json"

    async def work(session: Session) -> None:
        number, tree = await wanted.tree(session)
        names = [relative(session.place, path) for path in paths]
        _require_files(wanted, tree, names)
        files = {name: tree[name] for name in names}
        async with borrowed(session.remote, number, files, wanted.task) as place:
            for name in names:
                _tell(name, place(name), as_json)

    with_session(options["profile"], work)
    return 0


def _require_files(wanted: RemoteSelector, tree: Tree, names: Sequence[str]) -> None:
    """Raises NotFound or UsageError with all that are none."""
    if lacking := [name for name in names if name not in tree]:
        raise wanted.nothing(" or ".join(map(repr, lacking)))
    if others := [name for name in names if tree[name].kind is not Kind.FILE]:
        kinds = [f"{name!r} ({tree[name].kind.name.lower()})" for name in others]
        raise UsageError(
            f"no file: {', '.join(kinds)}", hint="`haiworkspace ls` lists what there is"
        )


def _tell(name: str, content: Path, as_json: bool) -> None:
    if as_json:
        event("cat", path=name, base64=b64encode(content.read_bytes()).decode())
        return
    with content.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.flush()

"""`haiworkspace diff`: the three trees compared, nothing changed."""

from __future__ import annotations

import asyncio
import difflib
import os
from pathlib import Path
from typing import Any

import click

from hai.client.errors import NotFound
from hai_sync.cli.opening import relative, with_session
from hai_sync.cli.options import common, filter_of, filters, note_unused
from hai_sync.cli.sizes import size_of
from hai_sync.cli.telling import change_facts, event, tell_problems
from hai_sync.core.diff import Change
from hai_sync.core.diff import diff as difference
from hai_sync.core.entry import Entry, Kind
from hai_sync.core.rules import Mode, Rules
from hai_sync.session.borrowing import borrowed
from hai_sync.session.session import Session
from hai_sync.session.wish import Report, Wish

_TEXT_BYTES = 1 << 20


@click.command()
@click.argument("path", default="")
@click.option("--stat", is_flag=True, help="Only how many and how much.")
@click.option("-n", "--no_checksum", is_flag=True, help="Compare sizes only.")
@click.option("-l", "--list_timeout", type=click.IntRange(5, 7200), hidden=True)
@filters
@common
def diff(path: str, stat: bool, no_checksum: bool, **options: Any) -> int:
    """What differs between here and the cluster; with a PATH, line by line. Exits with 1 if anything does."""
    note_unused(options)
    wish = Wish(
        Rules(Mode.SYNC), filter_of(options), dry_run=True, by_size=no_checksum, purpose="diff"
    )

    async def work(session: Session) -> tuple[Report, str]:
        report = await session.sync(wish)
        return report, await _text(session, report, relative(session.place, path)) if path else ""

    report, text = with_session(options["profile"], work)
    if path:
        click.echo(text, nl=False)
        return 1 if text else 0
    changes = _differences(report)
    tell_problems(report)
    if options["as_json"] or options["output"] == "json":
        event("diff", changes=[change_facts(change) for change in changes])
    elif stat:
        click.echo(_stat(changes))
    else:
        for change in changes:
            click.echo(f"{_SIDES[change.verb]:13} {change.path}")
    return 1 if changes else 0


_SIDES = {"create": "local only", "remove": "cluster only", "modify": "differs"}


def _differences(report: Report) -> list[Change]:
    outcome = report.outcome
    paths = {c.path for c in (*outcome.to_local, *outcome.to_remote)}
    for conflict in outcome.conflicts:
        paths |= conflict.local.keys() | conflict.remote.keys()
    return [change for change in difference(report.remote, report.local) if change.path in paths]


def _stat(changes: list[Change]) -> str:
    rows = []
    for verb, name in _SIDES.items():
        mine = [change for change in changes if change.verb == verb]
        size = sum(e.size for change in mine if (e := change.new or change.old) is not None)
        rows.append(f"{name:13} {len(mine):6} paths  {size_of(size)}")
    return "\n".join(rows)


async def _text(session: Session, report: Report, path: str) -> str:
    """A unified difference of one file: the cluster's version first. Raises NotFound."""
    entry, ours = report.remote.get(path), report.local.get(path)
    if entry is None and ours is None:
        raise NotFound(
            f"nothing that is synced is called {path!r}, neither here nor on the cluster"
        )
    if all(change.path != path for change in _differences(report)):
        return ""
    sizes = [each.size for each in (entry, ours) if each is not None]
    if max(sizes, default=0) > _TEXT_BYTES:
        return f"cluster/{path} and local/{path} differ; they are too large to be shown by lines\n"
    old = await _fetched(session, report.revision, path, entry) if entry is not None else b""
    new = await asyncio.to_thread(_read, session.place.root / path)
    lines = difflib.unified_diff(_lines(old), _lines(new), f"cluster/{path}", f"local/{path}")
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


async def _fetched(session: Session, revision: int, path: str, entry: Entry) -> bytes:
    if entry.kind is not Kind.FILE:
        return entry.target.encode()
    async with borrowed(session.remote, revision, {path: entry}) as place:
        return await asyncio.to_thread(place(path).read_bytes)


def _read(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(os.readlink(path))
    return path.read_bytes() if path.is_file() else b""


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines(keepends=True)

"""The command `haiworkspace diff`: compares the local files with the cluster, or two revisions."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hai.client.errors import NotFound
from hai.client.text.formatting import size_text
from hai_sync.cli.options import (
    build_filter,
    common_options,
    filter_options,
    links_option,
    wants_json,
    warn_about_unused_options,
)
from hai_sync.cli.remote_selector import Revision
from hai_sync.cli.reporting import change_facts, print_event, print_problems, printable
from hai_sync.cli.session_factory import relative_path, with_session
from hai_sync.core.diff import Change
from hai_sync.core.diff import diff as difference
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree, is_within
from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.remote.downloader import temporary_copies
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.session import Session

_SIDES = {"create": "local only", "remove": "cluster only", "modify": "differs"}
_TEXT_BYTES = 1 << 20
_VERBS = {"create": "added", "remove": "removed", "modify": "changed"}


@click.command()
@click.argument("path", default="")
@click.option("--stat", is_flag=True, help="Print only counts and sizes.")
@click.option(
    "-r",
    "--revision",
    "revisions",
    type=Revision(),
    multiple=True,
    help="Show changes of the cluster since this revision, or with two revisions those between them.",
)
@click.option("-n", "--no_checksum", is_flag=True, help="Compare sizes only.")
@click.option("-l", "--list_timeout", type=click.IntRange(5, 7200), hidden=True)
@links_option
@filter_options
@common_options
def diff(path: str, stat: bool, revisions: Sequence[str], **options: Any) -> int:
    """Show what differs between this directory and the cluster, for a file line by line. The exit code is 1 if anything
    differs.
    """
    warn_about_unused_options(options)
    if len(revisions) > 2:
        raise click.UsageError("-r can be given once or twice")
    if revisions and (options["no_checksum"] or build_filter(options).is_special):
        raise click.UsageError("revisions are compared without filters: name a PATH instead")

    async def work(session: Session) -> tuple[Sequence[Change], str]:
        name = relative_path(session.workspace, path) if path else ""
        if revisions:
            found = await compare_revisions(session, revisions)
            is_folder = _is_folder(name, found.old, found.new)
            return changes_below(found.changes, name), "" if is_folder else await found.text(
                session, name
            )
        report = await session.sync(_sync_options(options))
        if not path:
            print_problems(report)
        is_folder = _is_folder(name, report.remote, report.local)
        text = "" if is_folder else await _text(session, report, name)
        return changes_below(_differences(report), name), text

    changes, text = with_session(options["profile"], work)
    if text and not stat and not wants_json(options):
        click.echo(text, nl=False)
    else:
        _print_changes(changes, _VERBS if revisions else _SIDES, stat, options)
    return 1 if changes else 0


def _is_folder(name: str, *trees: Tree) -> bool:
    """Return whether a path is a directory in one of the trees. The empty path is the root."""
    return not name or DIRECTORY in [tree.get(name) for tree in trees]


def _sync_options(options: Mapping[str, Any]) -> SyncOptions:
    filter, by_size = build_filter(options), options["no_checksum"]
    return SyncOptions(Rules(Mode.SYNC), filter, dry_run=True, by_size=by_size, purpose="diff")


def _print_changes(
    changes: Sequence[Change], labels: Mapping[str, str], stat: bool, options: Mapping[str, Any]
) -> None:
    if wants_json(options):
        print_event("diff", changes=[change_facts(change) for change in changes])
    elif stat:
        click.echo(_stat(changes, labels))
    else:
        for change in changes:
            click.echo(printable(f"{labels[change.verb]:13} {change.path}"))


def _differences(report: Report) -> list[Change]:
    outcome = report.outcome
    paths = {c.path for c in (*outcome.to_local, *outcome.to_remote)}
    for conflict in outcome.conflicts:
        paths |= conflict.local.keys() | conflict.remote.keys()
    return [change for change in difference(report.remote, report.local) if change.path in paths]


def _stat(changes: Sequence[Change], labels: Mapping[str, str]) -> str:
    rows = []
    for verb, name in labels.items():
        matching = [change for change in changes if change.verb == verb]
        size = sum(e.size for change in matching if (e := change.new or change.old) is not None)
        rows.append(f"{name:13} {len(matching):6} paths  {size_text(size)}")
    return "\n".join(rows)


async def _text(session: Session, report: Report, path: str) -> str:
    """Return a unified diff of one file, with the cluster's version first. Raises NotFound."""
    remote_entry, local_entry = report.remote.get(path), report.local.get(path)
    if remote_entry is None and local_entry is None:
        raise NotFound(
            f"nothing that is synced is called {path!r}, neither here nor on the cluster"
        )
    if all(change.path != path for change in _differences(report)):
        return ""
    if is_too_large(remote_entry, local_entry):
        return f"cluster/{path} and local/{path} differ; they are too large to be shown by lines\n"
    old = await fetch_bytes(session, report.revision, path, remote_entry)
    new = await asyncio.to_thread(_read, session.workspace.root / path)
    return text_diff(f"cluster/{path}", f"local/{path}", old, new)


def _read(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(os.readlink(path))
    return path.read_bytes() if path.is_file() else b""


@dataclass(frozen=True, slots=True)
class RevisionPair:
    """Two revisions of the cluster with their trees."""

    numbers: tuple[int, int]
    old: Tree
    new: Tree

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes from the older to the newer tree."""
        return difference(self.old, self.new)

    async def text(self, session: Session, path: str) -> str:
        """Return a unified diff of one path. Raises NotFound."""
        old, new = self.old.get(path), self.new.get(path)
        before, after = (f"revision {number}/{path}" for number in self.numbers)
        if old is None and new is None:
            raise NotFound(f"neither {before} nor {after} exists")
        if old == new:
            return ""
        if is_too_large(old, new):
            return f"{before} and {after} differ; they are too large to be shown by lines\n"
        texts = [
            await fetch_bytes(session, number, path, entry)
            for number, entry in zip(self.numbers, (old, new), strict=True)
        ]
        return text_diff(before, after, *texts)


async def compare_revisions(session: Session, revisions: Sequence[str]) -> RevisionPair:
    """Compare two revisions, or one with the files on the cluster now. Raises NotFound."""
    first, second = [await session.remote.resolve_revision(each) for each in (*revisions, "0")[:2]]
    old_number, old = await session.remote.tree({}, 0, first)
    new_number, new = await session.remote.tree({}, 0, second)
    return RevisionPair((old_number, new_number), old, new)


def is_too_large(*entries: Entry | None) -> bool:
    """Return whether a diff by lines would be too long to read."""
    return max((entry.size for entry in entries if entry is not None), default=0) > _TEXT_BYTES


async def fetch_bytes(session: Session, revision: int, path: str, entry: Entry | None) -> bytes:
    """Return the content of a remote file, or the target of a link; empty for a directory."""
    if entry is None or entry.kind is not Kind.FILE:
        return b"" if entry is None else entry.target.encode()
    async with temporary_copies(session.remote, revision, {path: entry}) as path_of:
        return await asyncio.to_thread(path_of(path).read_bytes)


def changes_below(changes: Sequence[Change], name: str) -> list[Change]:
    """Return the changes at or below a path. The empty path is the root."""
    return [change for change in changes if not name or is_within(change.path, name)]


def text_diff(before: str, after: str, old: bytes, new: bytes) -> str:
    """Return a unified diff, or one sentence if the files are binary or differ only in their kind or mode."""
    if b"\0" in old or b"\0" in new:
        return f"{before} and {after} differ; they are not text\n"
    lines = list(difflib.unified_diff(_lines(old), _lines(new), before, after))
    if not lines:
        return f"{before} and {after} differ in their kind or in the executable bit\n"
    text = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _lines(data: bytes) -> list[str]:
    """Return the lines of a file. Different bytes that are not UTF-8 become different surrogates."""
    return data.decode("utf-8", "surrogateescape").splitlines(keepends=True)

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
from hai_sync.core.entry import Entry, Kind
from hai_sync.remote.fetching import Download, fetch
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

    place = Path(target).absolute() if target else None

    async def work(session: Session) -> tuple[int, int]:
        async with asyncio.timeout(sync_timeout):
            return await _download(session, path, place, force, progress)

    files, size = with_session(options["profile"], work, progress)
    progress.end()
    if as_json:
        event("done", files=files, bytes=size)
    else:
        click.echo(f"{files} files, {size_of(size)}")
    return 0


async def _download(
    session: Session, path: str, target: Path | None, force: bool, progress: Progress
) -> tuple[int, int]:
    revision, tree = await session.remote.tree({}, 0)
    chosen = {p: tree[p] for p in matching(tree, [path])}
    if not chosen:
        raise NotFound(f"nothing on the cluster is called {path!r}")
    root = target or session.place.root
    files = {p: e for p, e in chosen.items() if e.kind is Kind.FILE}
    _refuse_existing(root, files, force)
    size = sum(entry.size for entry in files.values())
    progress.stage("download", len(files), size)
    wanted = Download(revision, files, session.place.own / "tmp")
    await fetch(session.remote, wanted, progress.progress)
    await asyncio.to_thread(_place, wanted, root, chosen)
    return len(files), size


def _refuse_existing(root: Path, files: dict[str, Entry], force: bool) -> None:
    there = [path for path in files if (root / path).exists()]
    differing = [path for path in there if (root / path).stat().st_size != files[path].size]
    if differing and not force:
        raise click.UsageError(
            f"{len(differing)} files are here already and differ, as {differing[0]}; use --force"
        )


def _place(wanted: Download, root: Path, chosen: dict[str, Entry]) -> None:
    """Links are not followed: a directory that is a link here is refused by name."""
    for path, entry in sorted(chosen.items()):
        to = root / path
        if any((root / part).is_symlink() for part in _parents(path)):
            raise click.UsageError(f"{path}: a directory on the way to it is a link here")
        to.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind is Kind.DIRECTORY:
            to.mkdir(exist_ok=True)
        elif entry.kind is Kind.SYMLINK:
            to.unlink(missing_ok=True)
            to.symlink_to(entry.target)
        else:
            _copy(wanted.place(entry.digest), to, entry)
    for digest in {entry.digest for entry in chosen.values() if entry.kind is Kind.FILE}:
        wanted.place(digest).unlink(missing_ok=True)


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def _copy(source: Path, target: Path, entry: Entry) -> None:
    import shutil

    temporary = target.with_name(f".{target.name}.{os.getpid()}.new"[-255:])
    shutil.copyfile(source, temporary)
    temporary.chmod(0o755 if entry.executable else 0o644)
    os.utime(temporary, ns=(entry.mtime_ns, entry.mtime_ns))
    os.replace(temporary, target)

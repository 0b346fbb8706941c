"""`haiworkspace snapshots`."""

from __future__ import annotations

import time
from typing import Any

import click

from hai.client.text.sizes import size_text
from hai.v1.workspace_pb2 import WorkspaceRevision
from hai_sync.cli.options import common, wants_json
from hai_sync.cli.reporting import event, printable
from hai_sync.cli.session_factory import with_session
from hai_sync.session.session import Session
from hai_sync.version_store import Version, VersionStore


@click.command()
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--tagged", is_flag=True, help="Only revisions that have a tag.")
@click.option("--local", is_flag=True, help="Versions that syncs have overwritten here.")
@common
def snapshots(count: int, tagged: bool, local: bool, **options: Any) -> int:
    """Revisions on the cluster, newest first; with --local what was kept here."""
    as_json = wants_json(options)

    async def work(session: Session) -> tuple[list[WorkspaceRevision], list[Version]]:
        if local:
            versions = list(VersionStore(session.workspace.versions_dir).versions())
            return [], sorted(versions, key=lambda version: -version.time)[:count]
        return list(await session.remote.revisions(count, tagged)), []

    revisions, versions = with_session(options["profile"], work)
    if as_json:
        event(
            "snapshots",
            revisions=list(map(revision_facts, revisions)),
            local=list(map(_version_facts, versions)),
        )
        return 0
    for revision in revisions:
        click.echo(printable(_line(revision)))
    for version in versions:
        when, size = _time(version.time), size_text(version.size)
        click.echo(printable(f"{version.stamp}  {when}  {size:>10}  {version.path}"))
    return 0


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _line(revision: WorkspaceRevision) -> str:
    pins = ", ".join(map(str, revision.pinned_by))
    return (
        f"{revision.number:6}  {_time(revision.create_time.ToSeconds())}  "
        f"{revision.files:7} files {size_text(revision.size_bytes):>10}  "
        f"+{revision.changed} -{revision.removed}  {revision.author}"
        + "".join(f"  [{tag}]" for tag in revision.tags)
        + (f"  tasks {pins}" if pins else "")
    )


def revision_facts(revision: WorkspaceRevision) -> dict[str, Any]:
    return {
        "number": revision.number,
        "created": revision.create_time.ToJsonString(),
        "author": revision.author,
        "changed": revision.changed,
        "removed": revision.removed,
        "files": revision.files,
        "bytes": revision.size_bytes,
        "pinned_by": list(revision.pinned_by),
        "tags": list(revision.tags),
    }


def _version_facts(version: Version) -> dict[str, Any]:
    return {"stamp": version.stamp, "path": version.path, "bytes": version.size}

"""The commands `haiworkspace snapshots` and `tag`."""

from __future__ import annotations

import time
from typing import Any

import click

from hai.client.text.formatting import size_text
from hai.v1.workspace_pb2 import WorkspaceRevision
from hai_sync.cli.options import common_options, wants_json
from hai_sync.cli.remote_selector import Revision
from hai_sync.cli.reporting import print_event, printable
from hai_sync.cli.session_factory import with_session
from hai_sync.session.session import Session
from hai_sync.version_store import Version, VersionStore


@click.command()
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--tagged", is_flag=True, help="List only revisions that have a tag.")
@click.option("--local", is_flag=True, help="List versions that syncs have overwritten here.")
@common_options
def snapshots(count: int, tagged: bool, local: bool, **options: Any) -> int:
    """List revisions on the cluster, newest first, or with --local versions saved here."""
    as_json = wants_json(options)

    async def work(session: Session) -> tuple[list[WorkspaceRevision], list[Version]]:
        if local:
            versions = list(VersionStore(session.workspace.versions_dir).versions())
            return [], sorted(versions, key=lambda version: -version.time)[:count]
        return list(await session.remote.revisions(count, tagged)), []

    revisions, versions = with_session(options["profile"], work)
    if as_json:
        print_event(
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


@click.command()
@click.argument("name")
@click.option(
    "-r",
    "--revision",
    type=Revision(),
    help="Which revision; by default the files on the cluster now.",
)
@click.option("--force", is_flag=True, help="Move the tag from the revision that has it.")
@click.option("--remove", is_flag=True, help="Remove the tag; the revision may then be deleted.")
@common_options
def tag(name: str, revision: str | None, force: bool, remove: bool, **options: Any) -> int:
    """Tag a revision of the cluster. It is kept for as long as it has a tag.

    \b
      haiworkspace tag baseline             the files on the cluster now
      haiworkspace tag paper-v1 -r 12       an older revision
      haiworkspace tag baseline --remove
    """
    if remove and (revision or force):
        raise click.UsageError("--remove takes only a name")

    async def work(session: Session) -> WorkspaceRevision | None:
        if remove:
            await session.remote.untag(name)
            return None
        number = await session.remote.resolve_revision(revision or "0")
        return await session.remote.tag(name, number, force)

    tagged = with_session(options["profile"], work)
    if wants_json(options):
        print_event("tag", tag=name, revision=revision_facts(tagged) if tagged else None)
    elif tagged is None:
        click.echo(f"no revision is tagged {name} any more")
    else:
        click.echo(f"revision {tagged.number} is tagged {name}")
    return 0

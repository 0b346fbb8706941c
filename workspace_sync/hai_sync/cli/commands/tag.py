"""`haiworkspace tag`."""

from __future__ import annotations

from typing import Any

import click

from hai.v1.workspace_pb2 import WorkspaceRevision
from hai_sync.cli.commands.snapshots import revision_facts
from hai_sync.cli.options import common, wants_json
from hai_sync.cli.remote_selector import Revision
from hai_sync.cli.reporting import event
from hai_sync.cli.session_factory import with_session
from hai_sync.session.session import Session


@click.command()
@click.argument("name")
@click.option("-r", "--revision", type=Revision(), help="Which; else what is on the cluster now.")
@click.option("--force", is_flag=True, help="Take the name from the revision that has it.")
@click.option("--remove", is_flag=True, help="Take the name away; the revision may go then.")
@common
def tag(name: str, revision: str | None, force: bool, remove: bool, **options: Any) -> int:
    """Give a revision of the cluster a name, and keep it for as long as it has one.

    \b
      haiworkspace tag baseline             what is on the cluster now
      haiworkspace tag paper-v1 -r 12       an older revision
      haiworkspace tag baseline --remove
    """
    if remove and (revision or force):
        raise click.UsageError("--remove takes a name only")

    async def work(session: Session) -> WorkspaceRevision | None:
        if remove:
            await session.remote.untag(name)
            return None
        number = await session.remote.resolve_revision(revision or "0")
        return await session.remote.tag(name, number, force)

    tagged = with_session(options["profile"], work)
    if wants_json(options):
        event("tag", tag=name, revision=revision_facts(tagged) if tagged else None)
    elif tagged is None:
        click.echo(f"no revision is tagged {name} any more")
    else:
        click.echo(f"revision {tagged.number} is tagged {name}")
    return 0

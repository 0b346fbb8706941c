"""`haiworkspace list`."""

from __future__ import annotations

import time
from typing import Any

import click

from hai.client.connection.transport import Connection
from hai.client.errors import NotFound
from hai.client.text.sizes import size_text
from hai.v1.workspace_pb2 import Workspace
from hai_sync.cli.options import common
from hai_sync.cli.reporting import event
from hai_sync.cli.session_factory import with_connection
from hai_sync.remote.endpoint import list_workspaces
from hai_sync.workspace_dir import WorkspaceDir, find


@click.command()
@common
def listing(**options: Any) -> int:
    """Your workspaces; the one that you stand in is marked."""

    async def work(connection: Connection) -> list[Workspace]:
        return list(await list_workspaces(connection))

    found = with_connection(options["profile"], work)
    place = _here()
    if options["as_json"] or options["output"] == "json":
        event("list", workspaces=[_facts(workspace, place) for workspace in found])
        return 0
    if not found:
        click.echo("no workspaces; `haiworkspace init NAME` makes this directory one", err=True)
    for workspace in found:
        click.echo(_line(workspace, place))
    return 0


def _here() -> WorkspaceDir | None:
    try:
        return find()
    except NotFound:
        return None


def _line(workspace: Workspace, place: WorkspaceDir | None) -> str:
    here = place is not None and place.name == workspace.name
    seconds = workspace.update_time.ToSeconds()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "never written"
    return (
        f"{'*' if here else ' '} {workspace.name:20} revision {workspace.revision:<5} "
        f"{workspace.files:7} files {size_text(workspace.size_bytes):>10}  {when}  {workspace.path}"
        + (f"  {place.root}" if here and place else "")
    )


def _facts(workspace: Workspace, place: WorkspaceDir | None) -> dict[str, Any]:
    here = place is not None and place.name == workspace.name
    return {
        "name": workspace.name,
        "remote": workspace.path,
        "local": str(place.root) if here and place else None,
        "revision": workspace.revision,
        "files": workspace.files,
        "bytes": workspace.size_bytes,
        "stored_bytes": workspace.stored_bytes,
        "quota_bytes": workspace.quota_bytes,
        "updated": workspace.update_time.ToJsonString() if workspace.revision else None,
    }

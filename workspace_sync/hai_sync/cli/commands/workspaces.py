"""The commands `haiworkspace init` and `list`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from hai.client.connection.transport import Connection
from hai.client.text.formatting import size_text
from hai.v1.workspace_pb2 import Workspace
from hai_sync.cli.options import common_options, wants_json, warn_about_unused_options
from hai_sync.cli.reporting import print_event
from hai_sync.cli.session_factory import with_connection
from hai_sync.remote.endpoint import list_workspaces
from hai_sync.workspace_dir import WorkspaceDir, create_workspace, find_workspace_or_none


@click.command()
@click.argument("name")
@click.option("-p", "--provider", hidden=True)
@common_options
def init(name: str, **options: Any) -> int:
    """Make this directory the workspace NAME.

    The workspace has the same name on the cluster. An existing workspace with this name is used.
    """
    from hai_sync.remote.endpoint import Remote

    warn_about_unused_options(options)
    workspace, new = create_workspace(Path.cwd(), name)

    async def work(connection: Connection) -> str:
        return (await Remote(connection, name).create()).path

    path = with_connection(options["profile"], work)
    if wants_json(options):
        print_event("done", name=name, local=str(workspace.root), remote=path, new=new)
    else:
        verb = "is now" if new else "is already"
        click.echo(f"{workspace.root} {verb} the workspace {name!r}, on the cluster {path}")
    return 0


@click.command()
@common_options
def listing(**options: Any) -> int:
    """List your workspaces. The one of the current directory is marked."""

    async def work(connection: Connection) -> list[Workspace]:
        return list(await list_workspaces(connection))

    found = with_connection(options["profile"], work)
    current = find_workspace_or_none()
    if wants_json(options):
        print_event("list", workspaces=[_facts(workspace, current) for workspace in found])
        return 0
    if not found:
        click.echo("no workspaces; `haiworkspace init NAME` makes this directory one", err=True)
    for workspace in found:
        click.echo(_line(workspace, current))
    return 0


def _line(workspace: Workspace, current: WorkspaceDir | None) -> str:
    is_current = current is not None and current.name == workspace.name
    seconds = workspace.update_time.ToSeconds()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "never written"
    return (
        f"{'*' if is_current else ' '} {workspace.name:20} revision {workspace.revision:<5} "
        f"{workspace.files:7} files {size_text(workspace.size_bytes):>10}  {when}  {workspace.path}"
        + (f"  {current.root}" if is_current and current else "")
    )


def _facts(workspace: Workspace, current: WorkspaceDir | None) -> dict[str, Any]:
    is_current = current is not None and current.name == workspace.name
    return {
        "name": workspace.name,
        "remote": workspace.path,
        "local": str(current.root) if is_current and current else None,
        "revision": workspace.revision,
        "files": workspace.files,
        "bytes": workspace.size_bytes,
        "stored_bytes": workspace.stored_bytes,
        "quota_bytes": workspace.quota_bytes,
        "updated": workspace.update_time.ToJsonString() if workspace.revision else None,
    }

"""The command `haiworkspace restore`: restores a revision of the cluster, or a version saved here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from hai_sync.cli.options import common_options, default_filter, links_option, wants_json
from hai_sync.cli.remote_selector import Revision
from hai_sync.cli.reporting import Progress, print_event, print_report, printable
from hai_sync.cli.session_factory import relative_path, with_session
from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.remote.endpoint import client_id
from hai_sync.session.lock import lock_workspace
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.restore import restore_local
from hai_sync.session.session import Session
from hai_sync.workspace_dir import WorkspaceDir, find_workspace


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-r", "--revision", type=Revision(), help="A revision of the cluster.")
@click.option("--local", "stamp", is_flag=False, flag_value="", help="Versions saved here.")
@click.option("--no-pull", is_flag=True, help="Restore on the cluster only.")
@links_option
@common_options
def restore(
    paths: tuple[str, ...], revision: str | None, stamp: str | None, no_pull: bool, **options: Any
) -> int:
    """Restore older versions.

    \b
      haiworkspace restore -r 12                 everything, as in revision 12
      haiworkspace restore -r 12 train.py data   only these
      haiworkspace restore -r baseline           a revision by its tag
      haiworkspace restore train.py --local      the overwritten version
    """
    if (revision is None) == (stamp is None):
        raise click.UsageError("use either -r REVISION or --local")
    workspace = find_workspace()
    names = list(dict.fromkeys(relative_path(workspace, path) for path in paths))
    as_json = wants_json(options)
    if stamp is not None:
        return _restore_local(workspace, names, stamp, as_json)

    async def work(session: Session) -> tuple[int, int, Report | None]:
        client = client_id(session.index.name())
        async with (
            lock_workspace(workspace.state_dir, _on_wait(as_json)),
            session.remote.lease("restore", client_id=client) as token,
        ):
            source = await session.remote.resolve_revision(revision or "")
            restored = await session.remote.restore(source, _chosen(names), token)
        if no_pull:
            return source, restored.number, None
        rules, filter = Rules(Mode.PULL), default_filter(options)
        sync_options = SyncOptions(rules, filter, many_removals=True, purpose="restore")
        return source, restored.number, await session.sync(sync_options)

    source, number, report = with_session(options["profile"], work)
    if as_json:
        print_event("restored", revision=number, source=source)
    else:
        description = ", ".join(_chosen(names)) or "everything"
        click.echo(f"revision {number}: {description} as in revision {revision}")
    if report is None:
        return 0
    print_report(report, as_json, quiet=False)
    return 0 if report.is_settled(_chosen(names)) else 1


def _chosen(names: list[str]) -> list[str]:
    """Return the paths to restore. An empty list means everything, as when the root is among them."""
    return [] if "" in names else names


def _restore_local(workspace: WorkspaceDir, names: list[str], stamp: str, as_json: bool) -> int:
    if not _chosen(names):
        raise click.UsageError("name the paths; `haiworkspace snapshots --local` lists them")
    asyncio.run(restore_local(workspace, names, stamp, _on_wait(as_json)))
    for path in names:
        if as_json:
            print_event("restored", path=path)
        else:
            click.echo(printable(f"{path} is restored"))
    return 0


def _on_wait(as_json: bool) -> Callable[[], None]:
    return partial(Progress(as_json, quiet=False).stage, "wait", 0, 0)

"""`haiworkspace restore`: a revision of the cluster, or a version that was kept here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from hai_sync.cli.options import common, outward_links, usual_filter
from hai_sync.cli.remote_selector import Revision
from hai_sync.cli.reporting import Progress, event, printable, tell_report
from hai_sync.cli.session_factory import relative, with_session
from hai_sync.core.rules import Mode, Rules
from hai_sync.remote.endpoint import client_id
from hai_sync.session.lock import locked
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.restore import restore_here
from hai_sync.session.session import Session
from hai_sync.workspace_dir import WorkspaceDir, find


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-r", "--revision", type=Revision(), help="Of the cluster.")
@click.option("--local", "stamp", is_flag=False, flag_value="", help="What was kept here.")
@click.option("--no-pull", is_flag=True, help="Only on the cluster.")
@outward_links
@common
def restore(
    paths: tuple[str, ...], revision: str | None, stamp: str | None, no_pull: bool, **options: Any
) -> int:
    """Bring older versions back.

    \b
      haiworkspace restore -r 12                 everything, as in revision 12
      haiworkspace restore -r 12 train.py data   only these
      haiworkspace restore -r baseline           a revision by its tag
      haiworkspace restore train.py --local      what was overwritten here
    """
    if (revision is None) == (stamp is None):
        raise click.UsageError("say -r REVISION, or --local")
    place = find()
    names = list(dict.fromkeys(relative(place, path) for path in paths))
    as_json = options["as_json"] or options["output"] == "json"
    if stamp is not None:
        return _restore_here(place, names, stamp, as_json)

    async def work(session: Session) -> tuple[int, int, Report | None]:
        us = client_id(session.index.name())
        async with (
            locked(place.state, _waits(as_json)),
            session.remote.lease("restore", client_id=us) as token,
        ):
            of = await session.remote.number_of(revision or "")
            made = await session.remote.restore(of, _chosen(names), token)
        if no_pull:
            return of, made.number, None
        rules, filter = Rules(Mode.PULL), usual_filter(options)
        wish = SyncOptions(rules, filter, many_removals=True, purpose="restore")
        return of, made.number, await session.sync(wish)

    of, number, report = with_session(options["profile"], work)
    if as_json:
        event("restored", revision=number, of=of)
    else:
        what = ", ".join(_chosen(names)) or "everything"
        click.echo(f"revision {number}: {what} as in revision {revision}")
    if report is None:
        return 0
    tell_report(report, as_json, quiet=False)
    return 0 if report.settled(_chosen(names)) else 1


def _chosen(names: list[str]) -> list[str]:
    """Of the cluster: the workspace itself is everything, for which no paths are named."""
    return [] if "" in names else names


def _restore_here(place: WorkspaceDir, names: list[str], stamp: str, as_json: bool) -> int:
    if not _chosen(names):
        raise click.UsageError("name the paths; `haiworkspace snapshots --local` lists them")
    asyncio.run(restore_here(place, names, stamp, _waits(as_json)))
    for path in names:
        if as_json:
            event("restored", path=path)
        else:
            click.echo(printable(f"{path} is back"))
    return 0


def _waits(as_json: bool) -> Callable[[], None]:
    return partial(Progress(as_json, quiet=False).stage, "wait", 0, 0)

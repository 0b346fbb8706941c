"""The command `haiworkspace status`."""

from __future__ import annotations

import time
from typing import Any

import click

from hai_sync.cli.options import common_options, default_filter, links_option, wants_json
from hai_sync.cli.reporting import conflict_line, print_event, printable, problem_lines
from hai_sync.cli.session_factory import with_session
from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.session import Session
from hai_sync.watch.control import query_daemon


@click.command()
@links_option
@common_options
def status(**options: Any) -> int:
    """Show the state of this workspace: changes on each side, conflicts, and the daemon."""
    sync_options = SyncOptions(
        Rules(Mode.SYNC), default_filter(options), dry_run=True, purpose="status"
    )

    async def work(session: Session) -> tuple[Report, dict[str, Any]]:
        report = await session.sync(sync_options)
        workspace = await session.remote.get()
        return report, {
            "name": session.workspace.name,
            "local": str(session.workspace.root),
            "remote": workspace.path,
            "last_sync": float(session.index.fact("synced", "0")),
            "writer": workspace.lease.holder,
            "daemon": query_daemon(session.workspace.private_dir, {"verb": "status"}, timeout=5),
        }

    report, facts = with_session(options["profile"], work)
    if wants_json(options):
        print_event("status", **facts, **report.as_dict())
        return 0
    for line in _lines(report, facts):
        click.echo(printable(line))
    return 0


def _lines(report: Report, facts: dict[str, Any]) -> list[str]:
    outcome, last, daemon = report.outcome, facts["last_sync"], facts["daemon"]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last)) if last else "never"
    lines = [
        f"workspace   {facts['name']}, revision {report.revision}",
        f"here        {facts['local']}",
        f"cluster     {facts['remote']}",
        f"last sync   {when}",
        f"daemon      {_daemon(daemon)}",
        f"files       {report.files}, {report.ignored} ignored",
        f"to push     {len(outcome.to_remote)}",
        f"to pull     {len(outcome.to_local)}",
        f"conflicts   {len(outcome.conflicts)}",
    ]
    if facts["writer"]:
        lines.append(f"written by  {facts['writer']}")
    lines += [f"  {conflict_line(conflict)}" for conflict in outcome.conflicts]
    return lines + problem_lines(report)


def _daemon(daemon: dict[str, Any] | None) -> str:
    if daemon is None:
        return "none; `haiworkspace watch start` keeps this in sync"
    text = f"pid {daemon['pid']}, {daemon['mode']}, {daemon['phase']}"
    return text + (f": {daemon['error']}" if daemon["error"] else "")

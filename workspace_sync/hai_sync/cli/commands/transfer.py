"""The commands `haiworkspace push`, `pull` and `sync`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from hai_sync.cli.options import (
    build_sync_options,
    transfer_options,
    wants_json,
    warn_about_unused_options,
)
from hai_sync.cli.reporting import Progress, print_plan, print_report
from hai_sync.cli.session_factory import with_session
from hai_sync.core.reconcile_options import Mode
from hai_sync.remote.endpoint import RateLimit
from hai_sync.session.options import Report
from hai_sync.session.session import Session


@click.command()
@transfer_options
def push(**options: Any) -> int:
    """Send local changes to the cluster.

    Files that tasks wrote there are kept; --delete removes them. If both sides have changed a file, the push is
    refused and lists it."""
    return _transfer_files(Mode.PUSH, options)


@click.command()
@transfer_options
def pull(**options: Any) -> int:
    """Fetch changes from the cluster.

    Files that only you have changed are kept. Overwritten versions are saved: see `restore`."""
    return _transfer_files(Mode.PULL, options)


@click.command()
@transfer_options
def sync(**options: Any) -> int:
    """Push and pull in one run."""
    return _transfer_files(Mode.SYNC, options)


def _transfer_files(mode: Mode, options: Mapping[str, Any]) -> int:
    """Sync and return the exit code."""
    as_json = wants_json(options)
    warn_about_unused_options(options)
    sync_options = build_sync_options(mode, options)
    progress = Progress(as_json, options["quiet"])

    async def work(session: Session) -> Report:
        session.remote.rate_limit = RateLimit(options["bwlimit"])
        async with asyncio.timeout(options["sync_timeout"]):
            return await session.sync(sync_options)

    try:
        report = with_session(options["profile"], work, progress)
    finally:
        progress.end()
    if sync_options.dry_run:
        return _print_dry_run(report, as_json)
    print_report(report, as_json, options["quiet"])
    return 0 if report.in_sync else 1


def _print_dry_run(report: Report, as_json: bool) -> int:
    print_plan(report, as_json)
    return 0 if report.outcome.idle and report.in_sync else 1

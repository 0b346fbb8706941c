"""What push, pull and sync have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hai_sync.cli.options import note_unused, wish_of
from hai_sync.cli.plan_output import tell_plan
from hai_sync.cli.reporting import Progress, tell_report
from hai_sync.cli.session_factory import with_session
from hai_sync.core.rules import Mode
from hai_sync.remote.rate_limit import RateLimit
from hai_sync.session.options import Report
from hai_sync.session.session import Session


def transfer_files(mode: Mode, options: Mapping[str, Any]) -> int:
    """Sync as the options say; the exit code."""
    as_json = options["as_json"] or options["output"] == "json"
    note_unused(options)
    wish = wish_of(mode, options)
    progress = Progress(as_json, options["quiet"])

    async def work(session: Session) -> Report:
        session.remote.pace = RateLimit(options["bwlimit"])
        async with asyncio.timeout(options["sync_timeout"]):
            return await session.sync(wish)

    try:
        report = with_session(options["profile"], work, progress)
    finally:
        progress.end()
    if wish.dry_run:
        return _dry(report, as_json)
    tell_report(report, as_json, options["quiet"])
    return 0 if report.in_sync else 1


def _dry(report: Report, as_json: bool) -> int:
    tell_plan(report, as_json)
    return 0 if report.outcome.idle and report.in_sync else 1

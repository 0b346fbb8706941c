"""The sentence in the line between two runs: which run begins, when, and why the one before it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hai_tui.formatting.values import local
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Run


def separator(runs: Sequence[Run], number: int) -> str:
    """`run 3 of 5, since 2026-11-21 12:30:00 · run 2 ended: …`; of an unknown run only its number."""
    by_number = {run.number: run for run in runs}
    run = by_number.get(number)
    if run is None:
        return text("logs.run", run=number)
    since = local(run.start_time if run.start_time.seconds else run.create_time)
    heading = text("logs.run.of", run=number, count=len(runs), since=since)
    before = by_number.get(number - 1)
    if before is None or not before.reason:
        return heading
    return text("logs.run.after", told=heading, before=before.number, reason=before.reason)

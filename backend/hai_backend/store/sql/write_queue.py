"""Commands with a caller who waits for each. Both databases queue them and settle a whole batch at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from hai_backend.domain.errors import HaiError
from hai_backend.store.sql.commands import Command

BATCH_LIMIT = 512
"""Commands in one transaction, at most: bounds its memory, and how long readers of versions wait."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedCommand:
    """A command and the future of its caller."""

    command: Command
    future: asyncio.Future[object]


def settle(batch: Iterable[tuple[QueuedCommand, object]]) -> None:
    """Wake every caller with its outcome. Runs in the event loop; a caller may have gone away."""
    for waiting, outcome in batch:
        if waiting.future.done():
            continue
        if isinstance(outcome, HaiError):
            waiting.future.set_exception(outcome)
        else:
            waiting.future.set_result(outcome)

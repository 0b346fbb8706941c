"""Reads the notice that the agent writes before this container is evicted (docs/contributing/containers.md).

The file is watched, not polled. The page then saves open notebooks and reports that to the agent.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from hai.task.channel import AgentError
from hai.task.current_channel import current
from hai.task.env import NOTICE_FILE as VARIABLE
from hai_jupyter.live.state_store import StateStore

__all__ = ["VARIABLE", "PreemptionNotices", "read_notice", "report_saved"]

_FACTS = ("kind", "reason", "given_at", "ends_at")
_CALL_SECONDS = 5.0


class PreemptionNotices:
    """Puts the notice into the store, and removes it when it is withdrawn."""

    def __init__(self, path: Path, store: StateStore) -> None:
        self._path = path
        self._store = store

    async def follow(self) -> None:
        """Update the store until cancelled."""
        from watchfiles import awatch

        self._publish()
        async for _ in awatch(self._path.parent, recursive=False, step=20, debounce=50):
            self._publish()

    def _publish(self) -> None:
        self._store.set_facts(notice=read_notice(self._path))


def read_notice(path: Path) -> dict[str, Any] | None:
    """Return the notice in the file; None if there is none, or only a part of one."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict):
        return None
    return {key: data.get(key, "") for key in _FACTS}


async def report_saved() -> None:
    """Tell the agent that everything is saved. An agent that does not answer is ignored."""
    with suppress(AgentError):
        await asyncio.to_thread(current().request, "saved", _CALL_SECONDS)

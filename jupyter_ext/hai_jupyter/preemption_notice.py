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

__all__ = ["VARIABLE", "PreemptionNotices", "read", "say_saved"]

_FACTS = ("kind", "reason", "given_at", "ends_at")
_CALL_SECONDS = 5.0


class PreemptionNotices:
    """Tells the board of each notice, and that there is none any more."""

    def __init__(self, path: Path, store: StateStore) -> None:
        self._path = path
        self._store = store

    async def follow(self) -> None:
        """Never returns; cancel it."""
        from watchfiles import awatch

        self._publish()
        async for _ in awatch(self._path.parent, recursive=False, step=20, debounce=50):
            self._publish()

    def _publish(self) -> None:
        self._store.set_facts(notice=read(self._path))


def read(path: Path) -> dict[str, Any] | None:
    """The notice in the file; None when there is none, or only half of one yet."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict):
        return None
    return {key: data.get(key, "") for key in _FACTS}


async def say_saved() -> None:
    """Tell the agent that nothing is left to save; it then need not wait. It does not matter when nobody hears."""
    with suppress(AgentError):
        await asyncio.to_thread(current().request, "saved", _CALL_SECONDS)

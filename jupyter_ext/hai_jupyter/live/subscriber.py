"""Collects changes for one open page. Changes of one task are merged, so a slow page costs bounded memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

ROWS_PER_FRAME = 500


class Subscriber:
    """Collects changes; `next` waits for some and returns them as one JSON text."""

    def __init__(self, tasks: Mapping[int, str], nodes: Mapping[str, str]) -> None:
        self._tasks = tasks
        self._nodes = nodes
        self._new_tasks: dict[int, None] = {}
        self._new_nodes: dict[str, None] = {}
        self._facts: dict[str, Any] = {}
        self._version = 0
        self._wake = asyncio.Event()

    def add_tasks(self, ids: Iterable[int], version: int) -> None:
        """Add changed tasks, with which the page is complete up to the version."""
        self._new_tasks.update(dict.fromkeys(ids))
        self._version = version
        self._wake.set()

    def add_nodes(self, names: Iterable[str]) -> None:
        """Add changed nodes."""
        self._new_nodes.update(dict.fromkeys(names))
        self._wake.set()

    def set_facts(self, **facts: Any) -> None:
        """Set values; the last value of each name is sent."""
        self._facts.update(facts)
        self._wake.set()

    def reset(self, store_id: str) -> None:
        """Make the page drop its state, which belongs to another store."""
        self._new_tasks.clear()
        self._new_nodes.clear()
        self._version = 0
        self.set_facts(board=store_id, reset=True)

    async def next(self) -> str:
        """Return the next frame: `{tasks, nodes, version, …}`; version 0 means that more frames follow."""
        await self._wake.wait()
        ids = list(self._new_tasks)[:ROWS_PER_FRAME]
        for id in ids:
            del self._new_tasks[id]
        names, self._new_nodes = list(self._new_nodes), {}
        facts, self._facts = self._facts, {}
        if not self._new_tasks:
            self._wake.clear()
        facts["version"] = 0 if self._new_tasks else self._version
        return self._frame(ids, names, facts)

    async def next_within(self, seconds: float) -> str:
        """Return the next frame, or an empty one after a time, so that the page knows that the connection is alive."""
        try:
            async with asyncio.timeout(seconds):
                return await self.next()
        except TimeoutError:
            return self._frame((), (), {"version": 0})

    def _frame(self, ids: Iterable[int], names: Iterable[str], facts: Mapping[str, Any]) -> str:
        rows = ",".join(self._tasks[id] for id in ids if id in self._tasks)
        cells = ",".join(self._nodes[name] for name in names if name in self._nodes)
        return f'{{"tasks":[{rows}],"nodes":[{cells}],{json.dumps(facts)[1:-1]}}}'

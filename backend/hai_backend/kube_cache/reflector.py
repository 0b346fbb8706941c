"""Keeps a cache up to date: lists all objects, watches changes, and lists again on errors and at regular intervals.

A watch may end at any time without an error, or stay open but send nothing more. A watch that ends, or is silent for
longer than the interval of bookmarks, is therefore resumed from the last version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

import structlog

from hai.client.connection.cancellation import cancelled_only_from_outside
from hai_backend.kube_cache.cache import CachedObject, Change, ObjectCache
from hai_backend.kube_cache.source import BOOKMARK, Body, Broken, Expired, Source

log = structlog.get_logger(__name__)
T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a reflector, in seconds."""

    relist_seconds: float = 300.0  # time between two lists
    stream_seconds: float = 240.0  # longest duration of a watch
    # a silent watch ends after this time; bookmarks arrive every minute
    quiet_seconds: float = 100.0


class Reflector(Generic[T]):
    """Calls `changed` with every change, and `complete` after each list. `listed` is set after the first list."""

    def __init__(
        self,
        name: str,
        source: Source,
        cache: ObjectCache[T],
        changed: Callable[[Sequence[Change[T]]], None],
        complete: Callable[[], None] = lambda: None,
        *,
        pace: Pace,
        random: Random,
    ) -> None:
        self._name = name
        self._source = source
        self._cache = cache
        self._changed = changed
        self._complete = complete
        self._pace = pace
        self._random = random
        self._version = 0
        self._pause = _FIRST_PAUSE
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled. Raises errors of the first list. Later errors are logged, and the list is retried."""
        while True:
            try:
                with cancelled_only_from_outside(f"a watch of {self._name}"):
                    await self._list()
                    await self._watch_until_relist(self._now() + self._pace.relist_seconds)
            except Expired:
                log.info("a watch expired: listing again", what=self._name)
            except Broken as error:
                log.warning("a watch broke", what=self._name, why=str(error))
                await self._back_off()
            except Exception:
                if not self.listed.is_set():
                    raise
                log.exception("a watch failed", what=self._name)
                await self._back_off()

    async def _list(self) -> None:
        items: dict[str, CachedObject[T]] = {}
        version = 0
        async for page in self._source.pages():
            items.update(
                (observed.uid, observed) for observed in map(self._cache.read_item, page.items)
            )
            version = int(page.version)
        self._version = version
        if changes := self._cache.apply_list(items, version):
            self._changed(changes)
        self.listed.set()
        self._complete()

    async def _watch_until_relist(self, until: float) -> None:
        """Watch repeatedly until it is time to list again."""
        while (remaining := until - self._now()) > 0:
            began = self._now()
            with suppress(TimeoutError):  # the watch was silent for too long
                await self._watch_once(min(remaining, self._pace.stream_seconds))
            if self._now() - began < _FIRST_PAUSE:
                await self._back_off()  # do not loop if the API server ends each watch at once

    async def _watch_once(self, seconds: float) -> None:
        async with aclosing(self._source.changes(str(self._version), seconds)) as changes:
            while True:
                async with asyncio.timeout(self._pace.quiet_seconds):
                    change = await anext(changes, None)
                if change is None:
                    return
                self._take(*change)

    def _take(self, kind: str, body: Body) -> None:
        self._version = max(self._version, int(body["metadata"]["resourceVersion"]))
        self._pause = _FIRST_PAUSE
        if kind != BOOKMARK and (change := self._cache.apply_change(kind, body)) is not None:
            self._changed([change])

    async def _back_off(self) -> None:
        await asyncio.sleep(self._pause * self._random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

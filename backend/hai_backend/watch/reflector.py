"""Keeps a picture true: lists, follows the changes, and lists again when it must, and now and then when it need not.

A stream may end at any time without an error, or stay open and say nothing more. So a stream that ends is resumed from
the last version, as is one that is silent for longer than bookmarks take; and on errors and every `relist_seconds` all
is listed.
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
from hai_backend.watch.cache import Change, ObjectCache, Seen
from hai_backend.watch.source import BOOKMARK, Body, Broken, Expired, Source

log = structlog.get_logger(__name__)
T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds."""

    relist_seconds: float = 300.0
    stream_seconds: float = 240.0  # a stream is opened anew after so long
    quiet_seconds: float = 100.0  # bookmarks come every minute: a silent stream is dead


class Reflector(Generic[T]):
    """`changed` hears of every change, `complete` after each list."""

    def __init__(
        self,
        name: str,
        source: Source,
        picture: ObjectCache[T],
        changed: Callable[[Sequence[Change[T]]], None],
        complete: Callable[[], None] = lambda: None,
        *,
        pace: Pace,
        random: Random,
    ) -> None:
        self._name = name
        self._source = source
        self._picture = picture
        self._changed = changed
        self._complete = complete
        self._pace = pace
        self._random = random
        self._version = 0
        self._pause = _FIRST_PAUSE
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """For ever. What is wrong from the very first list on is raised; later it may be mended."""
        while True:
            try:
                with cancelled_only_from_outside(f"a watch of {self._name}"):
                    await self._list()
                    await self._follow(self._now() + self._pace.relist_seconds)
            except Expired:
                log.info("a watch expired: listing again", what=self._name)
            except Broken as error:
                log.warning("a watch broke", what=self._name, why=str(error))
                await self._rest()
            except Exception:
                if not self.listed.is_set():
                    raise
                log.exception("a watch failed", what=self._name)
                await self._rest()

    async def _list(self) -> None:
        items: dict[str, Seen[T]] = {}
        version = 0
        async for page in self._source.pages():
            items.update((seen.uid, seen) for seen in map(self._picture.look, page.items))
            version = int(page.version)
        self._version = version
        if changes := self._picture.listed(items, version):
            self._changed(changes)
        self.listed.set()
        self._complete()

    async def _follow(self, until: float) -> None:
        """Streams, one after the other, until it is time to list again."""
        while (left := until - self._now()) > 0:
            began = self._now()
            with suppress(TimeoutError):  # it was silent for too long
                await self._stream(min(left, self._pace.stream_seconds))
            if self._now() - began < _FIRST_PAUSE:
                await self._rest()  # whoever ends streams at once shall not be asked in a circle

    async def _stream(self, seconds: float) -> None:
        async with aclosing(self._source.changes(str(self._version), seconds)) as changes:
            while True:
                async with asyncio.timeout(self._pace.quiet_seconds):
                    said = await anext(changes, None)
                if said is None:
                    return
                self._take(*said)

    def _take(self, kind: str, body: Body) -> None:
        self._version = max(self._version, int(body["metadata"]["resourceVersion"]))
        self._pause = _FIRST_PAUSE
        if kind != BOOKMARK and (change := self._picture.take(kind, body)) is not None:
            self._changed([change])

    async def _rest(self) -> None:
        await asyncio.sleep(self._pause * self._random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

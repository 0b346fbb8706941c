"""Watches: each reads the window of changes at its own pace; one that falls behind is cut off, without an error.

There is no queue per watch: the window is shared, and only what is on its way to one socket is held for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError, ahead, expired
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.selectors import Selection, selection
from hai_backend.testing.kube.storage.store import Change, History, Store, Stored
from hai_backend.testing.kube.timers import Timer, Timers, pause

_WITHOUT_LIMIT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The query of a watch."""

    resource: Resource
    namespace: str
    selected: Selection | None
    revision: int | None  # None: begin with everything that there is
    initial_events: bool
    bookmarks: bool
    seconds: float

    @staticmethod
    def read(resource: Resource, namespace: str, query: Mapping[str, str]) -> Asked:
        """Raises ApiError 400."""
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        version, initial = (
            query.get("resourceVersion") or "0",
            query.get("sendInitialEvents") == "true",
        )
        if not version.isdecimal():
            raise ApiError(400, f"Invalid value: resourceVersion: {version}")
        return Asked(
            *(resource, namespace, selection(resource, labels, fields)),
            revision=None if initial or version == "0" else int(version),
            initial_events=initial,
            bookmarks=query.get("allowWatchBookmarks") in ("true", "1"),
            seconds=float(query.get("timeoutSeconds") or _WITHOUT_LIMIT_SECONDS),
        )

    def sees(self, stored: Stored) -> bool:
        here = not self.namespace or stored.namespace == self.namespace
        return here and (self.selected is None or self.selected(stored))


def line(kind: str, encoded: bytes) -> bytes:
    """One event of a stream."""
    return b'{"type":"' + kind.encode() + b'","object":' + encoded + b"}\n"


def bookmark(resource: Resource, revision: int, annotations: Body) -> bytes:
    """The event that says no more than how far the stream has come."""
    meta: Body = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = annotations
    body: Body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    if resource.kind == "Pod":
        body |= {"spec": {"containers": None}, "status": {}}
    return line("BOOKMARK", json.dumps(body).encode())


Lines = list[bytes]
Send = Callable[[bytes], Awaitable[None]]
_AT_ONCE_BYTES = 32_000
_BOOKMARK_SECONDS = 60.0
_AHEAD_SECONDS = 3.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(eq=False)
class Watch:
    """One stream. Tests freeze it, cut it, or disturb what it says."""

    asked: Asked
    store: Store
    timers: Timers
    lag: int  # changes that it may be behind while its reader does not read
    disturb: Callable[[Lines], Lines] = lambda lines: lines
    frozen: bool = False
    ended: bool = False
    sent: int = 0
    _next: int = 0
    _stuck: bool = False
    _bookmark: bool = False
    _over: bool = False
    _timers: list[Timer] = field(default_factory=list)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def history(self) -> History:
        return self.store.histories[self.asked.resource]

    async def run(self, send: Send) -> None:
        """Until its time is over, it is ended or cut off. An error goes into the stream."""
        try:
            await self._begin(send)
        except ApiError as error:
            await send(line("ERROR", json.dumps(error.status()).encode()))
            return
        self.history.readers.add(self.wake)
        self._timers.append(self.timers.call_later(self.asked.seconds, self._time_over))
        self._set_bookmark()
        try:
            await self._follow(send)
        finally:
            self.history.readers.discard(self.wake)
            for timer in self._timers:
                timer.cancel()

    def end(self) -> None:
        """The stream ends as if all were well."""
        self.ended = True
        self._woken.set()

    def wake(self) -> None:
        """Something has happened. A reader that stands still while much happens is given up."""
        if self._stuck and self.history.end - self._next > self.lag:
            self.ended = True
        self._woken.set()

    async def _begin(self, send: Send) -> None:
        asked, store = self.asked, self.store
        if asked.revision is None:
            return await self._show_all(send)
        if asked.revision > store.revision:
            await pause(self.timers, _AHEAD_SECONDS)
            if asked.revision > store.revision:
                raise ahead(asked.revision, store.revision)
        if asked.revision < self.history.oldest:
            raise expired(asked.revision, self.history.oldest)
        self._next = self.history.after(asked.revision)

    async def _show_all(self, send: Send) -> None:
        revision, self._next = self.store.revision, self.history.end
        found = [s for s in self.store.everything(self.asked.resource) if self.asked.sees(s)]
        for start in range(0, len(found), 100):
            await send(b"".join(line("ADDED", s.encoded()) for s in found[start : start + 100]))
        if self.asked.initial_events and self.asked.bookmarks:
            await send(bookmark(self.asked.resource, revision, _INITIAL_END))

    async def _follow(self, send: Send) -> None:
        while not self.ended:
            self._woken.clear()
            if self._next < self.history.first and not self.frozen:
                return  # it slept through more than the window holds
            if lines := self._take():
                self._stuck = True
                await send(b"".join(self.disturb(lines)))
                self._stuck = False
                self.sent += len(lines)
            elif self._over:
                return
            else:
                await self._woken.wait()

    def _take(self) -> Lines:
        lines: Lines = []
        size = 0
        if self.frozen:
            return lines
        while self._next < self.history.end and size < _AT_ONCE_BYTES:
            if (told := self._seen(self.history.at(self._next))) is not None:
                lines.append(told)
                size += len(told)
            self._next += 1
        if self._bookmark and self._next == self.history.end:
            self._bookmark = False
            lines.append(bookmark(self.asked.resource, self.store.revision, {}))
        return lines

    def _seen(self, change: Change) -> bytes | None:
        """The change as this watch sees it: what leaves the selection is deleted for it."""
        now = change.type != "DELETED" and self.asked.sees(change.stored)
        before = change.previous is not None and self.asked.sees(change.previous)
        if now:
            return line("MODIFIED" if before else "ADDED", change.stored.encoded())
        if not before or change.previous is None:
            return None
        if change.type == "DELETED":
            return line("DELETED", change.stored.encoded())
        meta = {**change.previous.meta, "resourceVersion": str(change.revision)}
        last = {**change.previous.body, "metadata": meta}
        return line("DELETED", Stored(self.asked.resource, last, change.revision).encoded())

    def _set_bookmark(self) -> None:
        if self.asked.bookmarks:
            self._timers[1:] = [self.timers.call_later(_BOOKMARK_SECONDS, self._bookmark_due)]

    def _bookmark_due(self) -> None:
        self._bookmark = True
        self._woken.set()
        self._set_bookmark()

    def _time_over(self) -> None:
        self._over, self._bookmark = True, self.asked.bookmarks
        self._woken.set()

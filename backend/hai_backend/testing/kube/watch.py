"""Watch streams. Each stream reads the window of changes at its own pace. If it falls behind, it ends without an error.

All watches share the window, so a watch needs no queue.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError, expired, revision_too_large
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.selectors import Selection, selection
from hai_backend.testing.kube.storage.store import Change, History, Store, StoredObject
from hai_backend.testing.kube.timers import Timer, Timers, pause

_DEFAULT_TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The query of a watch."""

    resource: Resource
    namespace: str
    selected: Selection | None
    revision: int | None  # if None, begin with all existing objects
    initial_events: bool
    bookmarks: bool
    timeout_seconds: float

    @staticmethod
    def parse(resource: Resource, namespace: str, query: Mapping[str, str]) -> WatchOptions:
        """Parse a query. Raises ApiError 400."""
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        version, initial = (
            query.get("resourceVersion") or "0",
            query.get("sendInitialEvents") == "true",
        )
        if not version.isdecimal():
            raise ApiError(400, f"Invalid value: resourceVersion: {version}")
        return WatchOptions(
            *(resource, namespace, selection(resource, labels, fields)),
            revision=None if initial or version == "0" else int(version),
            initial_events=initial,
            bookmarks=query.get("allowWatchBookmarks") in ("true", "1"),
            timeout_seconds=float(query.get("timeoutSeconds") or _DEFAULT_TIMEOUT_SECONDS),
        )

    def selects(self, stored: StoredObject) -> bool:
        in_namespace = not self.namespace or stored.namespace == self.namespace
        return in_namespace and (self.selected is None or self.selected(stored))


def line(kind: str, encoded: bytes) -> bytes:
    """Encode an event of a stream."""
    return b'{"type":"' + kind.encode() + b'","object":' + encoded + b"}\n"


def bookmark(resource: Resource, revision: int, annotations: Body) -> bytes:
    """Encode a bookmark event, which contains only the revision of the stream."""
    meta: Body = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = annotations
    body: Body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    if resource.kind == "Pod":
        body |= {"spec": {"containers": None}, "status": {}}
    return line("BOOKMARK", json.dumps(body).encode())


Lines = list[bytes]
Send = Callable[[bytes], Awaitable[None]]
_BATCH_BYTES = 32_000
_BOOKMARK_SECONDS = 60.0
_FUTURE_REVISION_WAIT_SECONDS = 3.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(eq=False)
class Watch:
    """A watch stream. Tests may freeze it, end it, or change its events with `disturb`."""

    options: WatchOptions
    store: Store
    timers: Timers
    lag: int  # number of changes by which it may fall behind while the client does not read
    disturb: Callable[[Lines], Lines] = lambda lines: lines
    frozen: bool = False
    ended: bool = False
    sent: int = 0
    _position: int = 0
    _sending: bool = False
    _bookmark_due: bool = False
    _timed_out: bool = False
    _timers: list[Timer] = field(default_factory=list)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def history(self) -> History:
        return self.store.histories[self.options.resource]

    async def run(self, send: Send) -> None:
        """Send events until the timeout, a call of `end`, or too much lag. An error is sent as an event."""
        try:
            await self._begin(send)
        except ApiError as error:
            await send(line("ERROR", json.dumps(error.status()).encode()))
            return
        self.history.readers.add(self.wake)
        self._timers.append(self.timers.call_later(self.options.timeout_seconds, self._on_timeout))
        self._schedule_bookmark()
        try:
            await self._follow(send)
        finally:
            self.history.readers.discard(self.wake)
            for timer in self._timers:
                timer.cancel()

    def end(self) -> None:
        """End the stream without an error."""
        self.ended = True
        self._woken.set()

    def wake(self) -> None:
        """Continue with new changes. End the stream if its client does not read and too many changes are waiting."""
        if self._sending and self.history.end - self._position > self.lag:
            self.ended = True
        self._woken.set()

    async def _begin(self, send: Send) -> None:
        options, store = self.options, self.store
        if options.revision is None:
            return await self._send_initial_events(send)
        if options.revision > store.revision:
            await pause(self.timers, _FUTURE_REVISION_WAIT_SECONDS)
            if options.revision > store.revision:
                raise revision_too_large(options.revision, store.revision)
        if options.revision < self.history.oldest:
            raise expired(options.revision, self.history.oldest)
        self._position = self.history.after(options.revision)

    async def _send_initial_events(self, send: Send) -> None:
        revision, self._position = self.store.revision, self.history.end
        existing = [
            s for s in self.store.sorted_objects(self.options.resource) if self.options.selects(s)
        ]
        for start in range(0, len(existing), 100):
            await send(b"".join(line("ADDED", s.encoded()) for s in existing[start : start + 100]))
        if self.options.initial_events and self.options.bookmarks:
            await send(bookmark(self.options.resource, revision, _INITIAL_END))

    async def _follow(self, send: Send) -> None:
        """Send changes until the watch ends."""
        while not self.ended:
            self._woken.clear()
            if self._position < self.history.first and not self.frozen:
                return  # the watch was frozen while the window lost changes
            if lines := self._pending_lines():
                self._sending = True
                await send(b"".join(self.disturb(lines)))
                self._sending = False
                self.sent += len(lines)
            elif self._timed_out:
                return
            else:
                await self._woken.wait()

    def _pending_lines(self) -> Lines:
        """Return the events of one batch, with a bookmark if one is due and no change remains."""
        lines: Lines = []
        size = 0
        if self.frozen:
            return lines
        while self._position < self.history.end and size < _BATCH_BYTES:
            if (event := self._event_of(self.history.at(self._position))) is not None:
                lines.append(event)
                size += len(event)
            self._position += 1
        if self._bookmark_due and self._position == self.history.end:
            self._bookmark_due = False
            lines.append(bookmark(self.options.resource, self.store.revision, {}))
        return lines

    def _event_of(self, change: Change) -> bytes | None:
        """Encode a change for this watch. An object that no longer matches the selection counts as deleted."""
        matches = change.type != "DELETED" and self.options.selects(change.stored)
        matched = change.previous is not None and self.options.selects(change.previous)
        if matches:
            return line("MODIFIED" if matched else "ADDED", change.stored.encoded())
        if not matched or change.previous is None:
            return None
        if change.type == "DELETED":
            return line("DELETED", change.stored.encoded())
        meta = {**change.previous.meta, "resourceVersion": str(change.revision)}
        last = {**change.previous.body, "metadata": meta}
        return line("DELETED", StoredObject(self.options.resource, last, change.revision).encoded())

    def _schedule_bookmark(self) -> None:
        if self.options.bookmarks:
            self._timers[1:] = [self.timers.call_later(_BOOKMARK_SECONDS, self._on_bookmark_timer)]

    def _on_bookmark_timer(self) -> None:
        self._bookmark_due = True
        self._woken.set()
        self._schedule_bookmark()

    def _on_timeout(self) -> None:
        self._timed_out, self._bookmark_due = True, self.options.bookmarks
        self._woken.set()

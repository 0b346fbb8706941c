"""`pods/log`: which container is meant, when there is nothing to show, and which lines were asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import dig, fine_stamp, seconds_of
from hai_backend.testing.kube.errors import ApiError, not_found
from hai_backend.testing.kube.request_info import RequestInfo
from hai_backend.testing.kube.storage.store import StoredObject


@dataclass(frozen=True, slots=True)
class LogOptions:
    """A request for the log of one container."""

    pod: StoredObject
    container: str
    previous: bool = False
    timestamps: bool = False
    since: float = 0.0
    tail: int | None = None
    limit_bytes: int | None = None


class LogSource(Protocol):
    """A kubelet, as far as logs go."""

    def read(self, asked: LogOptions) -> bytes:
        """What is there. Raises ApiError."""

    def follow(self, asked: LogOptions) -> AsyncIterator[bytes]:
        """What is there and what comes, until the container has ended. Raises ApiError at once."""


def log_options(api: Api, call: RequestInfo) -> LogOptions:
    """Raises ApiError 404, or 400 when the container is not named and there are several."""
    pod = api.store.get(call.resource, call.namespace, call.name)
    if pod is None:
        raise not_found(call.resource, call.name)
    query = call.query
    since = seconds_of(query["sinceTime"]) if "sinceTime" in query else 0.0
    if "sinceSeconds" in query:
        since = api.timers.now() - int(query["sinceSeconds"])
    return LogOptions(
        *(pod, _container(pod, query.get("container", ""))),
        previous=query.get("previous") == "true",
        timestamps=query.get("timestamps") == "true",
        since=since,
        tail=_number(query, "tailLines"),
        limit_bytes=_number(query, "limitBytes"),
    )


def _container(pod: StoredObject, asked: str) -> str:
    spec = pod.body["spec"]
    main = [c["name"] for c in spec["containers"]]
    known = [*main, *(c["name"] for c in spec.get("initContainers") or [])]
    if asked and asked not in known:
        raise ApiError(400, f"container {asked} is not valid for pod {pod.name}")
    if not asked and len(known) > 1 and len(main) > 1:
        names = " ".join(main)
        message = f"a container name must be specified for pod {pod.name}, choose one of: [{names}]"
        raise ApiError(400, message)
    return asked or str(main[0])


def not_yet(asked: LogOptions) -> bytes:
    """The answer for a container that has written nothing because it has not started. Raises ApiError 400."""
    if not dig(asked.pod.body, "spec.nodeName"):
        return b""
    statuses = dig(asked.pod.body, "status.initContainerStatuses", [])
    statuses = [*statuses, *dig(asked.pod.body, "status.containerStatuses", [])]
    state: Any = next((s.get("state") for s in statuses if s["name"] == asked.container), None)
    reason = dig(state or {}, "waiting.reason", "ContainerCreating")
    which = f'container "{asked.container}" in pod "{asked.pod.name}"'
    raise ApiError(400, f"{which} is waiting to start: {reason}")


def _number(query: Mapping[str, str], name: str) -> int | None:
    return int(query[name]) if name in query else None


_KEPT_BYTES = 4 << 20
Line = tuple[float, bytes]


class Output:
    """One run of one container; the oldest lines go."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._dropped = 0  # how many lines have gone
        self._size = 0
        self._part = b""
        self.ended = False
        self._grown = asyncio.Event()

    def feed(self, now: float, data: bytes) -> None:
        *whole, self._part = (self._part + data).split(b"\n")
        for text in whole:
            self._add(now, text + b"\n")
        self._wake()

    def end(self, now: float) -> None:
        """Nothing comes any more."""
        if self._part:
            self._add(now, self._part)
        self._part, self.ended = b"", True
        self._wake()

    def read(self, asked: LogOptions) -> bytes:
        return b"".join(_show(line, asked) for line in self._chosen(asked))[: asked.limit_bytes]

    async def follow(self, asked: LogOptions) -> AsyncIterator[bytes]:
        """What is there, then what comes."""
        text, at = self.read(asked), self._dropped + len(self._lines)
        if text:
            yield text
        while not self.ended or at < self._dropped + len(self._lines):
            if at == self._dropped + len(self._lines):
                await self._grown.wait()
                continue
            fresh = list(self._lines)[max(0, at - self._dropped) :]
            at = self._dropped + len(self._lines)
            yield b"".join(_show(line, asked) for line in fresh)

    def _chosen(self, asked: LogOptions) -> list[Line]:
        lines = [line for line in self._lines if line[0] >= asked.since]
        return lines if asked.tail is None else lines[max(0, len(lines) - asked.tail) :]

    def _add(self, now: float, text: bytes) -> None:
        self._lines.append((now, text))
        self._size += len(text)
        while self._size > _KEPT_BYTES:
            self._size -= len(self._lines.popleft()[1])
            self._dropped += 1

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


def _show(line: Line, asked: LogOptions) -> bytes:
    when, text = line
    return fine_stamp(when).encode() + b" " + text if asked.timestamps else text

"""Answers requests for pods/log. Parses their options, and stores and selects the output of containers."""

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
    """The part of a kubelet that reads logs."""

    def read(self, options: LogOptions) -> bytes:
        """Return the log so far. Raises ApiError."""

    def follow(self, options: LogOptions) -> AsyncIterator[bytes]:
        """Stream the log until the container has ended. The call itself raises ApiError."""


def log_options(api: Api, info: RequestInfo) -> LogOptions:
    """Parse a request. Raises ApiError 404, or 400 if the pod has several containers and the request names none."""
    pod = api.store.get(info.resource, info.namespace, info.name)
    if pod is None:
        raise not_found(info.resource, info.name)
    query = info.query
    since = seconds_of(query["sinceTime"]) if "sinceTime" in query else 0.0
    if "sinceSeconds" in query:
        since = api.timers.now() - int(query["sinceSeconds"])
    return LogOptions(
        *(pod, _container_name(pod, query.get("container", ""))),
        previous=query.get("previous") == "true",
        timestamps=query.get("timestamps") == "true",
        since=since,
        tail=_number(query, "tailLines"),
        limit_bytes=_number(query, "limitBytes"),
    )


def _container_name(pod: StoredObject, requested: str) -> str:
    spec = pod.body["spec"]
    main_names = [c["name"] for c in spec["containers"]]
    known = [*main_names, *(c["name"] for c in spec.get("initContainers") or [])]
    if requested and requested not in known:
        raise ApiError(400, f"container {requested} is not valid for pod {pod.name}")
    if not requested and len(main_names) > 1:
        names = " ".join(main_names)
        message = f"a container name must be specified for pod {pod.name}, choose one of: [{names}]"
        raise ApiError(400, message)
    return requested or str(main_names[0])


def waiting_log(options: LogOptions) -> bytes:
    """Return an empty log for a pod without a node. Raises ApiError 400 for a container that has not started."""
    if not dig(options.pod.body, "spec.nodeName"):
        return b""
    statuses = dig(options.pod.body, "status.initContainerStatuses", [])
    statuses = [*statuses, *dig(options.pod.body, "status.containerStatuses", [])]
    state: Any = next((s.get("state") for s in statuses if s["name"] == options.container), None)
    reason = dig(state or {}, "waiting.reason", "ContainerCreating")
    which = f'container "{options.container}" in pod "{options.pod.name}"'
    raise ApiError(400, f"{which} is waiting to start: {reason}")


async def one_chunk(text: bytes) -> AsyncIterator[bytes]:
    """Stream a log that is complete."""
    yield text


def _number(query: Mapping[str, str], name: str) -> int | None:
    return int(query[name]) if name in query else None


_MAX_BYTES = 4 << 20
Line = tuple[float, bytes]


class Output:
    """The output of one run of a container. If it is too long, the oldest lines are dropped."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._dropped = 0  # number of dropped lines
        self._size = 0
        self._incomplete = b""
        self.ended = False
        self._changed = asyncio.Event()

    def feed(self, now: float, data: bytes) -> None:
        *complete, self._incomplete = (self._incomplete + data).split(b"\n")
        for text in complete:
            self._add(now, text + b"\n")
        self._wake()

    def end(self, now: float) -> None:
        """End the output, because the container has ended."""
        if self._incomplete:
            self._add(now, self._incomplete)
        self._incomplete, self.ended = b"", True
        self._wake()

    def read(self, options: LogOptions) -> bytes:
        return b"".join(_format(line, options) for line in self._select(options))[
            : options.limit_bytes
        ]

    async def follow(self, options: LogOptions) -> AsyncIterator[bytes]:
        """Stream the output so far, and then new output until the end."""
        text, at = self.read(options), self._dropped + len(self._lines)
        if text:
            yield text
        while not self.ended or at < self._dropped + len(self._lines):
            if at == self._dropped + len(self._lines):
                await self._changed.wait()
                continue
            new_lines = list(self._lines)[max(0, at - self._dropped) :]
            at = self._dropped + len(self._lines)
            yield b"".join(_format(line, options) for line in new_lines)

    def _select(self, options: LogOptions) -> list[Line]:
        lines = [line for line in self._lines if line[0] >= options.since]
        return lines if options.tail is None else lines[max(0, len(lines) - options.tail) :]

    def _add(self, now: float, text: bytes) -> None:
        self._lines.append((now, text))
        self._size += len(text)
        while self._size > _MAX_BYTES:
            self._size -= len(self._lines.popleft()[1])
            self._dropped += 1

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _format(line: Line, options: LogOptions) -> bytes:
    when, text = line
    return fine_stamp(when).encode() + b" " + text if options.timestamps else text

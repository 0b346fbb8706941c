"""A client of the Kubernetes API with limited concurrency, retries and typed errors. Objects are plain dictionaries.

Every request may be repeated, because names are fixed. If the response to a create request was lost, the repeated
request raises AlreadyExists; a repeated delete request raises NotFound. Each request is tried `_TRIES` times.
`retry_forever` is for work that no other code would try again.

Each method can raise Unavailable, Throttled, Conflict and Rejected. Docstrings mention only other errors, and these
errors if they have a special meaning.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

import structlog

from hai_backend.kube_cache.source import Body, Page
from hai_backend.launch.kubernetes.errors import (
    ApiError,
    Conflict,
    Throttled,
    Unavailable,
    error_from,
)

log = structlog.get_logger(__name__)
T = TypeVar("T")

ANY_POD = "AnyPod"  # pods of all namespaces
PATHS: Mapping[
    str, tuple[str, str, bool]
] = {  # kind -> group, plural, whether it is in our namespace
    ANY_POD: ("/api/v1", "pods", False),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Event": ("/api/v1", "events", True),
    "Ingress": ("/apis/networking.k8s.io/v1", "ingresses", True),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies", True),
    "Node": ("/api/v1", "nodes", False),
    "Pod": ("/api/v1", "pods", True),
    "Secret": ("/api/v1", "secrets", True),
    "Service": ("/api/v1", "services", True),
}
_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_MAX_CONCURRENT = 48
_REQUEST_SECONDS = 30.0
_PAGE_ITEMS = 200
_MERGE = "application/strategic-merge-patch+json"
_OPERATIONS = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `form` is the content type of `body`."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    form: str = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request, successful or not."""

    code: int
    body: bytes
    retry_after: str = ""


class Transport(Protocol):
    """Sends requests to one API server. official_client.py implements it; tests have one without sockets."""

    async def ask(self, call: Call, seconds: float) -> Answer:
        """Send a request and return the response. Raises Unavailable if there was none within `seconds`."""

    def lines(self, call: Call) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the lines of the response.

        Raises Unavailable if the connection breaks, and another ApiError or Expired if the request is refused.
        """

    async def close(self) -> None:
        """Close all connections."""


class Api:
    """Requests to the API server. `namespace` contains all objects of this installation."""

    def __init__(self, transport: Transport, namespace: str, random: Random) -> None:
        self._transport = transport
        self._namespace = namespace
        self._random = random
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def create(self, manifest: Body) -> Body:
        """Create an object and return it. Raises AlreadyExists, or NotFound if the namespace does not exist."""
        return await self._send_with_retries(
            Call("POST", self._path(manifest["kind"]), body=manifest)
        )

    async def get(self, kind: str, name: str) -> Body:
        """Return an object. Raises NotFound."""
        return await self._send_with_retries(Call("GET", self._path(kind, name)))

    async def patch(self, kind: str, name: str, change: Body, part: str = "") -> Body:
        """Change some fields; lists are merged by their merge keys. `part` is a subresource. Raises NotFound."""
        path = self._path(kind, name) + (f"/{part}" if part else "")
        return await self._send_with_retries(Call("PATCH", path, body=change, form=_MERGE))

    async def add(
        self,
        kind: str,
        name: str,
        field: str,
        values: Mapping[str, Any],
        *,
        where: Mapping[str, str],
    ) -> Body:
        """Add entries to the map `field` of an object.

        Raises NotFound, and Rejected if the object does not have all the labels `where`.
        """
        labels = [_operation("test", f"metadata/labels/{_escaped(n)}", v) for n, v in where.items()]
        added = [_operation("add", f"{field}/{_escaped(n)}", v) for n, v in values.items()]
        call = Call("PATCH", self._path(kind, name), body=[*labels, *added], form=_OPERATIONS)
        return await self._send_with_retries(call)

    async def delete(
        self, kind: str, name: str, *, grace: int | None = None, uid: str = ""
    ) -> Body:
        """Begin to delete an object and its dependents. Raises NotFound, also if its uid is not `uid`.

        `grace` is in seconds; None means the grace period of the object.
        """
        options = {"propagationPolicy": "Background", **_options(grace, uid)}
        return await self._send_with_retries(Call("DELETE", self._path(kind, name), body=options))

    async def evict(self, pod: str, *, grace: int | None = None, uid: str = "") -> None:
        """Delete a pod if disruption budgets allow it. Raises Throttled if they do not, and NotFound."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self._namespace},
            "deleteOptions": _options(grace, uid),
        }
        await self._send_with_retries(
            Call("POST", self._path("Pod", pod) + "/eviction", body=eviction)
        )

    async def pages(self, kind: str, query: Mapping[str, str]) -> AsyncIterator[Page]:
        """List all objects of a kind, page by page. Raises Expired if listing took too long."""
        token = ""
        while True:
            more = {"continue": token} if token else {}
            parameters = {**query, "limit": str(_PAGE_ITEMS), **more}
            response = await self._send_with_retries(Call("GET", self._path(kind), parameters))
            meta = response["metadata"]
            yield Page(response["items"], meta["resourceVersion"])
            token = meta.get("continue", "")
            if not token:
                return

    async def changes(
        self, kind: str, query: Mapping[str, str], version: str, seconds: float
    ) -> AsyncGenerator[tuple[str, Body], None]:
        """Watch changes since `version` for `seconds`. Raises Expired if `version` is too old."""
        parameters = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        async with aclosing(
            self._transport.lines(Call("GET", self._path(kind), parameters))
        ) as lines:
            async for line in lines:
                event = _parse_event(line)
                if event["type"] == "ERROR":
                    raise _stream_error(event["object"])
                yield event["type"], event["object"]

    async def retry_forever(self, act: Callable[[], Awaitable[T]]) -> T:
        """Call `act` until it succeeds or raises an error that a retry cannot resolve. Return its result."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await act()
            except (Unavailable, Throttled, Conflict) as error:
                log.warning("retrying a request to the cluster", why=str(error))
            pause = await self._back_off(pause)

    async def close(self) -> None:
        await self._transport.close()

    async def _send_with_retries(self, call: Call) -> Body:
        pause = _FIRST_PAUSE
        for _ in range(_TRIES - 1):
            try:
                return await self._send(call)
            except Throttled as error:
                await asyncio.sleep(min(error.seconds, _LONGEST_PAUSE) * self._jitter())
            except (Unavailable, Conflict):
                pause = await self._back_off(pause)
        return await self._send(call)

    async def _send(self, call: Call) -> Body:
        async with self._slots:
            answer = await self._transport.ask(call, _REQUEST_SECONDS)
        if answer.code >= 300:
            raise error_from(answer.code, answer.body, answer.retry_after)
        try:
            body: Body = json.loads(answer.body)
        except ValueError as error:
            raise Unavailable("the API server's answer was cut short") from error
        return body

    async def _back_off(self, pause: float) -> float:
        await asyncio.sleep(pause * self._jitter())
        return min(2 * pause, _LONGEST_PAUSE)

    def _jitter(self) -> float:
        return self._random.uniform(0.5, 1.5)

    def _path(self, kind: str, name: str = "") -> str:
        group, plural, namespaced = PATHS[kind]
        space = f"/namespaces/{self._namespace}" if namespaced else ""
        return f"{group}{space}/{plural}" + (f"/{name}" if name else "")


class ApiSource:
    """Implements kube_cache.source.Source for one kind."""

    def __init__(self, api: Api, kind: str, query: Mapping[str, str]) -> None:
        self._api, self._kind, self._query = api, kind, query

    def pages(self) -> AsyncIterator[Page]:
        """See Source."""
        return self._api.pages(self._kind, self._query)

    def changes(self, version: str, seconds: float) -> AsyncGenerator[tuple[str, Body], None]:
        """See Source."""
        return self._api.changes(self._kind, self._query, version, seconds)


def _options(grace: int | None, uid: str) -> Body:
    made: Body = {"gracePeriodSeconds": grace} if grace is not None else {}
    return {**made, "preconditions": {"uid": uid}} if uid else made


def _operation(operation: str, path: str, value: Any) -> Body:
    return {"op": operation, "path": f"/{path}", "value": value}


def _escaped(segment: str) -> str:
    return segment.replace("~", "~0").replace("/", "~1")


def _parse_event(line: bytes) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise Unavailable("the stream broke in the middle of an event") from error
    return event


def _stream_error(status: Body) -> Exception:
    response = error_from(int(status.get("code") or 500), json.dumps(status).encode())
    return (
        response
        if not isinstance(response, ApiError) or isinstance(response, Unavailable)
        else Unavailable(str(response))
    )

"""The verbs that we use, on plain dictionaries: bounded, repeated where that is safe, and with errors of our own.

Every verb here may be repeated: names are fixed, so a create that was carried out unheard is answered AlreadyExists,
and a delete NotFound. Each is tried `_TRIES` times; `patiently` goes on for ever, for what nobody would ask again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, TypeVar

import structlog

from hai_backend.launch.kubernetes.errors import (
    ApiError,
    Conflict,
    Throttled,
    Unavailable,
    error_of,
)
from hai_backend.launch.kubernetes.transport import Call, Transport
from hai_backend.watch.source import Body, Page

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
_AT_ONCE = 48
_ASK_SECONDS = 30.0
_PAGE = 200
_MERGE = "application/strategic-merge-patch+json"
_OPERATIONS = "application/json-patch+json"


class Api:
    """`namespace` is where everything of ours lives."""

    def __init__(self, transport: Transport, namespace: str, random: Random) -> None:
        self._transport = transport
        self._namespace = namespace
        self._random = random
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def create(self, manifest: Body) -> Body:
        """The object as the cluster made it. Raises AlreadyExists, Refused, NotFound (the namespace) …"""
        return await self._tried(Call("POST", self._path(manifest["kind"]), body=manifest))

    async def get(self, kind: str, name: str) -> Body:
        """One object. Raises NotFound …"""
        return await self._tried(Call("GET", self._path(kind, name)))

    async def patch(self, kind: str, name: str, change: Body, part: str = "") -> Body:
        """Change some fields (lists by their merge keys). `part` is a sub-resource. Raises NotFound …"""
        path = self._path(kind, name) + (f"/{part}" if part else "")
        return await self._tried(Call("PATCH", path, body=change, form=_MERGE))

    async def add(
        self,
        kind: str,
        name: str,
        field: str,
        values: Mapping[str, Any],
        *,
        where: Mapping[str, str],
    ) -> Body:
        """Add to a table of an object that has all the labels `where`. Raises Refused when it has not, NotFound …"""
        labels = [_operation("test", f"metadata/labels/{_escaped(n)}", v) for n, v in where.items()]
        added = [_operation("add", f"{field}/{_escaped(n)}", v) for n, v in values.items()]
        call = Call("PATCH", self._path(kind, name), body=[*labels, *added], form=_OPERATIONS)
        return await self._tried(call)

    async def delete(
        self, kind: str, name: str, *, grace: int | None = None, uid: str = ""
    ) -> Body:
        """Begin to delete it, and in the background what it owns. Raises NotFound, also when `uid` is another's …"""
        options = {"propagationPolicy": "Background", **_options(grace, uid)}
        return await self._tried(Call("DELETE", self._path(kind, name), body=options))

    async def evict(self, pod: str, *, grace: int | None = None, uid: str = "") -> None:
        """Delete a pod as far as disruption budgets allow it. Raises Throttled when they do not, NotFound …"""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self._namespace},
            "deleteOptions": _options(grace, uid),
        }
        await self._tried(Call("POST", self._path("Pod", pod) + "/eviction", body=eviction))

    async def pages(self, kind: str, query: Mapping[str, str]) -> AsyncIterator[Page]:
        """Everything of a kind. Raises Expired when it took too long, Unavailable …"""
        following = ""
        while True:
            more = {"continue": following} if following else {}
            asked = {**query, "limit": str(_PAGE), **more}
            found = await self._tried(Call("GET", self._path(kind), asked))
            meta = found["metadata"]
            yield Page(found["items"], meta["resourceVersion"])
            following = meta.get("continue", "")
            if not following:
                return

    async def changes(
        self, kind: str, query: Mapping[str, str], version: str, seconds: float
    ) -> AsyncGenerator[tuple[str, Body], None]:
        """What happens from now on. Raises Expired, Unavailable …"""
        asked = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        async with aclosing(self._transport.lines(Call("GET", self._path(kind), asked))) as lines:
            async for line in lines:
                said = _said(line)
                if said["type"] == "ERROR":
                    raise _in_stream(said["object"])
                yield said["type"], said["object"]

    async def patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do it, however long the API server is away. Raises what repeating does not help against."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await act()
            except (Unavailable, Throttled, Conflict) as error:
                log.warning("the cluster is asked again", why=str(error))
            pause = await self._rest(pause)

    async def close(self) -> None:
        await self._transport.close()

    async def _tried(self, call: Call) -> Body:
        pause = _FIRST_PAUSE
        for _ in range(_TRIES - 1):
            try:
                return await self._asked(call)
            except Throttled as error:
                await asyncio.sleep(min(error.seconds, _LONGEST_PAUSE) * self._jitter())
            except (Unavailable, Conflict):
                pause = await self._rest(pause)
        return await self._asked(call)

    async def _asked(self, call: Call) -> Body:
        async with self._room:
            answer = await self._transport.ask(call, _ASK_SECONDS)
        if answer.code >= 300:
            raise error_of(answer.code, answer.body, answer.retry_after)
        try:
            body: Body = json.loads(answer.body)
        except ValueError as error:
            raise Unavailable("the API server's answer was cut short") from error
        return body

    async def _rest(self, pause: float) -> float:
        await asyncio.sleep(pause * self._jitter())
        return min(2 * pause, _LONGEST_PAUSE)

    def _jitter(self) -> float:
        return self._random.uniform(0.5, 1.5)

    def _path(self, kind: str, name: str = "") -> str:
        group, plural, in_ours = PATHS[kind]
        space = f"/namespaces/{self._namespace}" if in_ours else ""
        return f"{group}{space}/{plural}" + (f"/{name}" if name else "")


class ApiSource:
    """Implements watch.source.Source for one kind."""

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


def _operation(what: str, path: str, value: Any) -> Body:
    return {"op": what, "path": f"/{path}", "value": value}


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _said(line: bytes) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise Unavailable("the stream broke in the middle of an event") from error
    return said


def _in_stream(status: Body) -> Exception:
    found = error_of(int(status.get("code") or 500), json.dumps(status).encode())
    return (
        found
        if not isinstance(found, ApiError) or isinstance(found, Unavailable)
        else Unavailable(str(found))
    )

"""`pods/log`: which container is meant, when there is nothing to show, and which lines were asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import dig, seconds_of
from hai_backend.testing.kube.calls import Call
from hai_backend.testing.kube.errors import ApiError, not_found
from hai_backend.testing.kube.stored import Stored


@dataclass(frozen=True, slots=True)
class AskedLog:
    """A request for the log of one container."""

    pod: Stored
    container: str
    previous: bool = False
    timestamps: bool = False
    since: float = 0.0
    tail: int | None = None
    limit_bytes: int | None = None


class LogSource(Protocol):
    """A kubelet, as far as logs go."""

    def read(self, asked: AskedLog) -> bytes:
        """What is there. Raises ApiError."""

    def follow(self, asked: AskedLog) -> AsyncIterator[bytes]:
        """What is there and what comes, until the container has ended. Raises ApiError at once."""


def asked_log(api: Api, call: Call) -> AskedLog:
    """Raises ApiError 404, or 400 when the container is not named and there are several."""
    pod = api.store.get(call.resource, call.namespace, call.name)
    if pod is None:
        raise not_found(call.resource, call.name)
    query = call.query
    since = seconds_of(query["sinceTime"]) if "sinceTime" in query else 0.0
    if "sinceSeconds" in query:
        since = api.timers.now() - int(query["sinceSeconds"])
    return AskedLog(
        *(pod, _container(pod, query.get("container", ""))),
        previous=query.get("previous") == "true",
        timestamps=query.get("timestamps") == "true",
        since=since,
        tail=_number(query, "tailLines"),
        limit_bytes=_number(query, "limitBytes"),
    )


def _container(pod: Stored, asked: str) -> str:
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


def not_yet(asked: AskedLog) -> bytes:
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

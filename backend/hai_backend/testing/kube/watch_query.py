"""What a watch asks for, and the lines that answer it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.selectors import Selection, selection
from hai_backend.testing.kube.stored import Stored

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

"""An object at one revision, and the bytes that show it."""

from __future__ import annotations

import json

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.resources import Resource

Key = tuple[str, str]  # namespace, name
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Stored:
    """An object as it is at one revision. Its body has no kind and apiVersion, as in lists of the real server."""

    __slots__ = ("_inner", "body", "key", "resource", "revision")

    def __init__(self, resource: Resource, body: Body, revision: int) -> None:
        meta = body["metadata"]
        self.resource = resource
        self.body = body
        self.revision = revision
        self.key: Key = (meta.get("namespace", ""), meta["name"])
        self._inner: bytes | None = None

    @property
    def inner(self) -> bytes:
        """Encoded, once, when somebody wants to see it."""
        if self._inner is None:
            self._inner = _encode(self.body).encode()
        return self._inner

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def meta(self) -> Body:
        meta: Body = self.body["metadata"]
        return meta

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.body["metadata"]

    def encoded(self) -> bytes:
        """With kind and apiVersion, as a get answers it."""
        head = f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'
        return head.encode() + self.inner[1:]

"""Answers list requests. All pages of a list show the same revision."""

from __future__ import annotations

import base64
import itertools
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError, expired_token
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.selectors import selection
from hai_backend.testing.kube.storage.store import Store, StoredObject

_MAX_SNAPSHOTS = 64  # limit of lists that have further pages; the oldest expires


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The result of a list request, kept so that its later pages show the same revision."""

    revision: int
    objects: list[StoredObject]
    has_selector: bool


class Lists:
    """Answers list requests with encoded pages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[int, _Snapshot] = OrderedDict()
        self._numbers = itertools.count(1)

    def answer(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> bytes:
        """Return the requested page. Raises ApiError 400, or 410 for an old continue token."""
        limit = _int_parameter(query, "limit")
        start = 0
        if token := query.get("continue"):
            snapshot, start = self._resume(token)
        else:
            snapshot = self._snapshot(resource, namespace, query)
        objects, end = snapshot.objects, start + limit if limit else len(snapshot.objects)
        meta: Body = {"resourceVersion": str(snapshot.revision)}
        if end < len(objects):
            meta["continue"] = self._continue_token(snapshot, end)
            if not snapshot.has_selector:
                meta["remainingItemCount"] = len(objects) - end
        return encode_list(resource, meta, objects[start:end])

    def expire(self) -> None:
        """Let all continue tokens expire."""
        self._snapshots.clear()

    def _snapshot(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> _Snapshot:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        matches = selection(resource, labels, fields)
        objects = [
            s
            for s in self._store.sorted_objects(resource)
            if (not namespace or s.namespace == namespace) and (matches is None or matches(s))
        ]
        return _Snapshot(self._store.revision, objects, matches is not None)

    def _continue_token(self, snapshot: _Snapshot, start: int) -> str:
        number = next(self._numbers)
        self._snapshots[number] = snapshot
        while len(self._snapshots) > _MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return base64.urlsafe_b64encode(json.dumps([number, start]).encode()).decode()

    def _resume(self, token: str) -> tuple[_Snapshot, int]:
        try:
            number, start = json.loads(base64.urlsafe_b64decode(token))
        except ValueError as error:
            raise ApiError(400, f"continue key is not valid: {error}") from error
        snapshot = self._snapshots.get(number)
        if snapshot is None:
            raise expired_token()
        return snapshot, int(start)


def encode_list(resource: Resource, meta: Body, objects: list[StoredObject]) -> bytes:
    """Encode a list from the encoded bodies of its objects."""
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
    return (
        json.dumps(head).encode()[:-1]
        + b',"items":['
        + b",".join(o.encoded_body for o in objects)
        + b"]}"
    )


def _int_parameter(query: Mapping[str, str], name: str) -> int:
    try:
        return int(query.get(name) or 0)
    except ValueError as error:
        raise ApiError(400, f"{name} must be a number, not {query[name]}") from error

"""From a call to its answer: one row a verb."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.control.pods import Pods
from hai_backend.testing.kube.errors import ApiError, not_found, revision_too_large
from hai_backend.testing.kube.kubelet.logs import LogSource, log_options
from hai_backend.testing.kube.request_info import RequestInfo
from hai_backend.testing.kube.server import protobuf
from hai_backend.testing.kube.server.lists import Lists, encode_list
from hai_backend.testing.kube.storage.deletes import Options
from hai_backend.testing.kube.storage.selectors import selection
from hai_backend.testing.kube.storage.store import StoredObject

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes over the wire."""

    code: int
    body: bytes
    form: str = _JSON


class RequestHandler:
    """Everything but streams."""

    def __init__(self, api: Api, pods: Pods, logs: LogSource) -> None:
        self._api = api
        self._pods = pods
        self._logs = logs
        self.lists = Lists(api.store)

    def perform(self, call: RequestInfo, form: str, body: bytes) -> Reply:
        """Raises ApiError."""
        match call.verb:
            case "get" if call.subresource == "log":
                return Reply(200, self._logs.read(log_options(self._api, call)), "text/plain")
            case "get":
                return Reply(200, self._get(call).encoded())
            case "list":
                return self._list(call)
            case "create":
                return self._create(call, _parsed(body, form))
            case "update":
                return self._update(call, _parsed(body, form))
            case "patch":
                return self._patch(call, form, body)
            case "delete":
                return self._delete(call, _parsed(body, form) if body else {})
        return self._delete_many(call, _parsed(body, form) if body else {})

    def follow_log(self, call: RequestInfo) -> AsyncIterator[bytes]:
        """The log, and what is added to it. Raises ApiError."""
        return self._logs.follow(log_options(self._api, call))

    def _get(self, call: RequestInfo) -> StoredObject:
        found = self._api.store.get(call.resource, call.namespace, call.name)
        if found is None:
            raise not_found(call.resource, call.name)
        return found

    def _list(self, call: RequestInfo) -> Reply:
        version = call.query.get("resourceVersion") or "0"
        if version.isdecimal() and int(version) > self._api.store.revision:
            raise revision_too_large(int(version), self._api.store.revision)
        return Reply(200, self._list_body(call))

    def _list_body(self, call: RequestInfo) -> bytes:
        return self.lists.answer(call.resource, call.namespace, call.query)

    def _create(self, call: RequestInfo, body: Any) -> Reply:
        if call.subresource == "binding":
            return _json(201, self._pods.bind(self._get(call), body))
        if call.subresource == "eviction":
            return _json(201, self._pods.evict(self._get(call), body))
        if call.name:
            raise ApiError(405, "the server does not allow this method on the requested resource")
        made = self._api.writes.create(call.resource, call.namespace, body, call.dry_run)
        return Reply(201, made.encoded())

    def _update(self, call: RequestInfo, body: Any) -> Reply:
        made, new = self._api.writes.replace(
            call.resource, call.namespace, call.name, body, call.subresource, call.dry_run
        )
        return Reply(201 if new else 200, made.encoded())

    def _patch(self, call: RequestInfo, form: str, body: bytes) -> Reply:
        made = self._api.writes.patch(
            call.resource, call.namespace, call.name, form, body, call.subresource, call.dry_run
        )
        return Reply(200, made.encoded())

    def _delete(self, call: RequestInfo, body: Any) -> Reply:
        options = Options.read(body, call.query)
        remaining = self._api.deletes.delete(call.resource, call.namespace, call.name, options)
        return (
            Reply(200, remaining.encoded())
            if isinstance(remaining, StoredObject)
            else _json(200, remaining)
        )

    def _delete_many(self, call: RequestInfo, body: Any) -> Reply:
        labels, fields = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
        selected = selection(call.resource, labels, fields)
        options = Options.read(body, call.query)
        deleted = self._api.deletes.delete_many(call.resource, call.namespace, selected, options)
        meta = {"resourceVersion": str(self._api.store.revision)}
        return Reply(200, encode_list(call.resource, meta, deleted))


def _parsed(body: bytes, form: str = _JSON) -> Any:
    if form not in ("", _JSON, protobuf.FORM):
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
        )
        raise ApiError(415, message + _JSON)
    try:
        return protobuf.read(body) if body.startswith(protobuf.MAGIC) else json.loads(body)
    except ValueError as error:
        raise ApiError(400, f"the body of the request cannot be read: {error}") from error


def _json(code: int, body: Any) -> Reply:
    return Reply(code, json.dumps(body).encode())

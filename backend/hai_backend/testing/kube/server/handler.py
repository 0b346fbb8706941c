"""Executes requests on the API, one method per verb."""

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
    """The response to a request."""

    code: int
    body: bytes
    form: str = _JSON


class RequestHandler:
    """Executes all requests except streams."""

    def __init__(self, api: Api, pods: Pods, logs: LogSource) -> None:
        self._api = api
        self._pods = pods
        self._logs = logs
        self.lists = Lists(api.store)

    def perform(self, info: RequestInfo, form: str, body: bytes) -> Reply:
        """Execute a request. Raises ApiError."""
        match info.verb:
            case "get" if info.subresource == "log":
                return Reply(200, self._logs.read(log_options(self._api, info)), "text/plain")
            case "get":
                return Reply(200, self._get(info).encoded())
            case "list":
                return self._list(info)
            case "create":
                return self._create(info, _parsed(body, form))
            case "update":
                return self._update(info, _parsed(body, form))
            case "patch":
                return self._patch(info, form, body)
            case "delete":
                return self._delete(info, _parsed(body, form) if body else {})
        return self._delete_many(info, _parsed(body, form) if body else {})

    def follow_log(self, info: RequestInfo) -> AsyncIterator[bytes]:
        """Stream a log. Raises ApiError."""
        return self._logs.follow(log_options(self._api, info))

    def _get(self, info: RequestInfo) -> StoredObject:
        found = self._api.store.get(info.resource, info.namespace, info.name)
        if found is None:
            raise not_found(info.resource, info.name)
        return found

    def _list(self, info: RequestInfo) -> Reply:
        version = info.query.get("resourceVersion") or "0"
        if version.isdecimal() and int(version) > self._api.store.revision:
            raise revision_too_large(int(version), self._api.store.revision)
        return Reply(200, self._list_body(info))

    def _list_body(self, info: RequestInfo) -> bytes:
        return self.lists.answer(info.resource, info.namespace, info.query)

    def _create(self, info: RequestInfo, body: Any) -> Reply:
        if info.subresource == "binding":
            return _json(201, self._pods.bind(self._get(info), body))
        if info.subresource == "eviction":
            return _json(201, self._pods.evict(self._get(info), body))
        if info.name:
            raise ApiError(405, "the server does not allow this method on the requested resource")
        made = self._api.writes.create(info.resource, info.namespace, body, info.dry_run)
        return Reply(201, made.encoded())

    def _update(self, info: RequestInfo, body: Any) -> Reply:
        made, new = self._api.writes.replace(
            info.resource, info.namespace, info.name, body, info.subresource, info.dry_run
        )
        return Reply(201 if new else 200, made.encoded())

    def _patch(self, info: RequestInfo, form: str, body: bytes) -> Reply:
        made = self._api.writes.patch(
            info.resource, info.namespace, info.name, form, body, info.subresource, info.dry_run
        )
        return Reply(200, made.encoded())

    def _delete(self, info: RequestInfo, body: Any) -> Reply:
        options = Options.read(body, info.query)
        remaining = self._api.deletes.delete(info.resource, info.namespace, info.name, options)
        return (
            Reply(200, remaining.encoded())
            if isinstance(remaining, StoredObject)
            else _json(200, remaining)
        )

    def _delete_many(self, info: RequestInfo, body: Any) -> Reply:
        labels, fields = info.query.get("labelSelector", ""), info.query.get("fieldSelector", "")
        selected = selection(info.resource, labels, fields)
        options = Options.read(body, info.query)
        deleted = self._api.deletes.delete_many(info.resource, info.namespace, selected, options)
        meta = {"resourceVersion": str(self._api.store.revision)}
        return Reply(200, encode_list(info.resource, meta, deleted))


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

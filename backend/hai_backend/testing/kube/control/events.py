"""Writes Events of components. A repeated Event only increments a count. The oldest Events are deleted."""

from __future__ import annotations

import uuid
from collections import OrderedDict

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, revised, stamp
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.storage.store import StoredObject

_MAX_EVENTS = 5000


class EventRecorder:
    """Writes Events about objects."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._events = api.resources["events"]
        self._events_by_key: OrderedDict[tuple[str, ...], StoredObject] = OrderedDict()

    def normal(self, about: StoredObject, reason: str, message: str, component: str) -> None:
        self._record("Normal", about, reason, message, component)

    def warning(self, about: StoredObject, reason: str, message: str, component: str) -> None:
        self._record("Warning", about, reason, message, component)

    def _record(
        self, kind: str, about: StoredObject, reason: str, message: str, component: str
    ) -> None:
        """Increment the count of an equal Event, or create a new one."""
        key = (about.uid, reason, message, component)
        old = self._events_by_key.get(key)
        current = self._api.latest(old) if old is not None else None
        if current is not None:
            counted = {
                "count": current.body["count"] + 1,
                "lastTimestamp": stamp(self._api.timers.now()),
            }
            self._events_by_key[key] = self._api.store.put(
                self._events, revised(current.body, **counted), current
            )
            return
        body = self._body(kind, about, reason, message, component)
        try:
            namespace = about.namespace or "default"
            self._events_by_key[key] = self._api.writes.create(self._events, namespace, body)
        except ApiError:
            return  # the namespace is being deleted
        self._delete_oldest()

    def _body(
        self, kind: str, about: StoredObject, reason: str, message: str, component: str
    ) -> Body:
        now = stamp(self._api.timers.now())
        involved = {
            "kind": about.resource.kind,
            "apiVersion": about.resource.api_version,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.meta["resourceVersion"],
        }
        body: Body = {"metadata": {"name": f"{about.name}.{uuid.uuid4().hex[:16]}"}, "type": kind}
        body |= {"involvedObject": {k: v for k, v in involved.items() if v}, "reason": reason}
        body |= {"message": message, "source": {"component": component}, "count": 1}
        body |= {"firstTimestamp": now, "lastTimestamp": now, "eventTime": None}
        return body | {"reportingComponent": component, "reportingInstance": ""}

    def _delete_oldest(self) -> None:
        while len(self._events_by_key) > _MAX_EVENTS:
            _, old = self._events_by_key.popitem(last=False)
            self._api.deletes.delete_if_current(old)

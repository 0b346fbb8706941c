"""Creating, replacing and patching objects: the rules between a request and the store."""

from __future__ import annotations

import json
from typing import Any

from hai_backend.testing.kube import admission, defaults
from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import (
    ApiError,
    Cause,
    already_exists,
    conflict,
    invalid,
    not_found,
)
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.revising import ended, main_of, patched, status_of, wrongly_changed
from hai_backend.testing.kube.store import Store
from hai_backend.testing.kube.stored import Stored
from hai_backend.testing.kube.timers import Timers
from hai_backend.testing.kube.validate import causes


class Writes:
    """POST, PUT and PATCH."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def create(self, resource: Resource, namespace: str, body: Any, dry: bool = False) -> Stored:
        """A new object. Raises ApiError 400, 403, 404, 409 or 422."""
        body = admission.check_body(resource, namespace, body)
        meta = body.get("metadata") or {}
        if not meta.get("name") and not meta.get("generateName"):
            row = Cause(
                "metadata.name",
                "FieldValueRequired",
                "Required value: name or generateName is required",
            )
            raise invalid(resource, "", [row])
        given = str(meta.get("name", ""))
        admission.check_namespace(self._store, resource, namespace, given)
        made = defaults.created(resource, namespace, body, self._timers.now())
        made = admission.with_priority(self._store, resource, made)
        made = admission.with_node_ports(self._store, resource, made)
        name = made["metadata"]["name"]
        _refuse(resource, name, causes(resource, made))
        if self._store.get(resource, made["metadata"].get("namespace", ""), name) is not None:
            raise already_exists(resource, name)
        return Stored(resource, made, 0) if dry else self._store.put(resource, made, None)

    def replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        part: str = "",
        dry: bool = False,
    ) -> tuple[Stored, bool]:
        """PUT; also answers whether it was created. Raises ApiError 400, 404, 409 or 422."""
        body = admission.check_body(resource, namespace, body)
        if (body.get("metadata") or {}).get("name", name) != name:
            raise ApiError(400, "the name of the object does not match the name on the URL")
        old = self._store.get(resource, namespace, name)
        if old is None and resource.upsert:
            return self.create(resource, namespace, body, dry), True
        if old is None:
            raise not_found(resource, name)
        version = (body.get("metadata") or {}).get("resourceVersion")
        if not version and not resource.unconditional:
            why = 'Invalid value: "": must be specified for an update'
            raise invalid(
                resource, name, [Cause("metadata.resourceVersion", "FieldValueInvalid", why)]
            )
        return self._change(old, body, part, dry), False

    def patch(
        self, resource: Resource, namespace: str, name: str, form: str, patch: bytes, part: str = "",
        dry: bool = False,
    ) -> Stored:  # fmt: skip
        """PATCH in one of three forms. Raises ApiError 400, 404, 409, 415 or 422."""
        old = self._store.get(resource, namespace, name)
        if old is None:
            raise not_found(resource, name)
        try:
            parsed = json.loads(patch)
        except ValueError as error:
            raise ApiError(400, f"error decoding patch: {error}") from error
        return self._change(old, patched(old, form, parsed), part, dry)

    def set_status(self, old: Stored, status: Body, metadata: Body | None = None) -> Stored:
        """What controllers do with what they have just read."""
        now = self._store.get(old.resource, *old.key)
        if now is None or now.uid != old.uid:
            return old
        meta = {**now.meta, **(metadata or {})}
        return self._store.put(old.resource, {**now.body, "metadata": meta, "status": status}, now)

    def set_spec(self, old: Stored, spec: Body) -> Stored:
        """The same for the spec, without the rules for clients."""
        now = self._store.get(old.resource, *old.key)
        if now is None or now.uid != old.uid:
            return old
        return self._store.put(old.resource, {**now.body, "spec": spec}, now)

    def _change(self, old: Stored, body: Body, part: str, dry: bool) -> Stored:
        meta = body.get("metadata") or {}
        if meta.get("uid", old.uid) != old.uid:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old.uid}"
            raise conflict(old.resource, old.name, why)
        if meta.get("resourceVersion") not in (None, "", old.meta["resourceVersion"]):
            raise conflict(old.resource, old.name)
        made = status_of(old, body) if part == "status" else main_of(old, body)
        _refuse(old.resource, old.name, [*wrongly_changed(old, made), *causes(old.resource, made)])
        if dry:
            return Stored(old.resource, made, old.revision)
        if ended(made):
            return self._store.remove(old, made)
        return self._store.put(old.resource, made, old)


def _refuse(resource: Resource, name: str, wrong: list[Cause]) -> None:
    if wrong:
        raise invalid(resource, name, wrong)

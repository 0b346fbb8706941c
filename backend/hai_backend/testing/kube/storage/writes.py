"""Creates, replaces and patches objects by the rules of the API server."""

from __future__ import annotations

import json
from typing import Any

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
from hai_backend.testing.kube.storage import admission
from hai_backend.testing.kube.storage.patches import json_patch, merge_patch, strategic_merge
from hai_backend.testing.kube.storage.store import Store, StoredObject
from hai_backend.testing.kube.timers import Timers
from hai_backend.testing.kube.validation import defaults
from hai_backend.testing.kube.validation.objects import causes
from hai_backend.testing.kube.validation.pods import forbidden_change, required

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# Fields that no request can change
_IMMUTABLE_METADATA = (
    *("name", "namespace", "uid", "creationTimestamp", "generateName"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "generation"),
)


def apply_patch(old: StoredObject, form: str, patch: Any) -> Body:
    """Return the patched body of an object. Raises ApiError 400, 415 or 422."""
    full_body = {"kind": old.resource.kind, "apiVersion": old.resource.api_version, **old.body}
    if form == JSON_PATCH and isinstance(patch, list):
        return json_patch(full_body, patch)
    if form == MERGE_PATCH and isinstance(patch, dict):
        return dict(merge_patch(full_body, patch))
    if form == STRATEGIC and old.resource.strategic and isinstance(patch, dict):
        return strategic_merge(full_body, patch)
    supported = [JSON_PATCH, MERGE_PATCH, *([STRATEGIC] if old.resource.strategic else [])]
    if form in supported:
        raise ApiError(400, f"error decoding patch: {type(patch).__name__} is not valid for {form}")
    raise ApiError(
        415,
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(supported),
    )


def _metadata(old: StoredObject, new: Body) -> Body:
    """Return the client's metadata, with the fields that only the server sets."""
    server_fields = {
        k: old.meta[k] for k in (*_IMMUTABLE_METADATA, "resourceVersion") if k in old.meta
    }
    client_fields = {
        k: v for k, v in new.items() if k not in _IMMUTABLE_METADATA and v not in (None, {}, [])
    }
    return {**client_fields, **server_fields}


def with_status(old: StoredObject, body: Body) -> Body:
    """Return the object with the status of the body."""
    meta = _metadata(old, {**old.meta, **(body.get("metadata") or {})})
    if "ownerReferences" in old.meta:
        meta["ownerReferences"] = old.meta["ownerReferences"]
    return {**old.body, "metadata": meta, "status": body.get("status") or {}}


def with_spec(old: StoredObject, body: Body) -> Body:
    """Return the object with everything of the body except its status."""
    fields = {
        k: v for k, v in body.items() if k not in ("kind", "apiVersion", "metadata", "status")
    }
    if not old.resource.has_status and "status" in body:
        fields["status"] = body["status"]
    made = {"metadata": _metadata(old, body.get("metadata") or {}), **fields}
    made = defaults.with_update_defaults(old.resource, old.body, made)
    if old.resource.has_status and "status" in old.body:
        made["status"] = old.body["status"]
    if old.resource.counted and made.get("spec") != old.body.get("spec"):
        made["metadata"] = {**made["metadata"], "generation": old.meta["generation"] + 1}
    return made


def immutable_changes(old: StoredObject, made: Body) -> list[Cause]:
    """Return the errors of an update that changes immutable fields."""
    if old.resource.kind == "Pod":
        violations = forbidden_change(old.body["spec"], made.get("spec") or {})
    elif old.body.get("immutable") and old.body.get("data") != made.get("data"):
        why = "Forbidden: field is immutable when `immutable` is set"
        violations = [Cause("data", "FieldValueForbidden", why)]
    else:
        violations = []
    added = set(made["metadata"].get("finalizers") or ()) - set(old.meta.get("finalizers") or ())
    if old.deleting and added:
        why = "Forbidden: no new finalizers can be added if the object is being deleted"
        violations.append(Cause("metadata.finalizers", "FieldValueForbidden", why))
    if old.resource.kind == "Pod" and not made.get("spec"):
        violations.append(required("spec"))
    return violations


def is_deletable(body: Body) -> bool:
    """Return whether an object is marked as deleted, and nothing delays its removal."""
    meta = body["metadata"]
    waits = meta.get("deletionGracePeriodSeconds") or (body.get("spec") or {}).get("finalizers")
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not waits


class Writes:
    """Creates, replaces and patches objects."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def create(
        self, resource: Resource, namespace: str, body: Any, dry_run: bool = False
    ) -> StoredObject:
        """Create an object. Raises ApiError 400, 403, 404, 409 or 422."""
        body = admission.check_body(resource, namespace, body)
        meta = body.get("metadata") or {}
        if not meta.get("name") and not meta.get("generateName"):
            row = Cause(
                "metadata.name",
                "FieldValueRequired",
                "Required value: name or generateName is required",
            )
            raise invalid(resource, "", [row])
        name_argument = str(meta.get("name", ""))
        admission.check_namespace(self._store, resource, namespace, name_argument)
        made = defaults.with_create_defaults(resource, namespace, body, self._timers.now())
        made = admission.with_priority(self._store, resource, made)
        made = admission.with_node_ports(self._store, resource, made)
        name = made["metadata"]["name"]
        _raise_if_invalid(resource, name, causes(resource, made))
        if self._store.get(resource, made["metadata"].get("namespace", ""), name) is not None:
            raise already_exists(resource, name)
        return StoredObject(resource, made, 0) if dry_run else self._store.put(resource, made, None)

    def replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        subresource: str = "",
        dry_run: bool = False,
    ) -> tuple[StoredObject, bool]:
        """Replace an object, and return whether it was created. Raises ApiError 400, 404, 409 or 422."""
        body = admission.check_body(resource, namespace, body)
        if (body.get("metadata") or {}).get("name", name) != name:
            raise ApiError(400, "the name of the object does not match the name on the URL")
        old = self._store.get(resource, namespace, name)
        if old is None and resource.upsert:
            return self.create(resource, namespace, body, dry_run), True
        if old is None:
            raise not_found(resource, name)
        version = (body.get("metadata") or {}).get("resourceVersion")
        if not version and not resource.unconditional:
            why = 'Invalid value: "": must be specified for an update'
            raise invalid(
                resource, name, [Cause("metadata.resourceVersion", "FieldValueInvalid", why)]
            )
        return self._change(old, body, subresource, dry_run), False

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        form: str,
        patch: bytes,
        subresource: str = "",
        dry_run: bool = False,
    ) -> StoredObject:
        """Apply a patch in one of three forms. Raises ApiError 400, 404, 409, 415 or 422."""
        old = self._store.get(resource, namespace, name)
        if old is None:
            raise not_found(resource, name)
        try:
            parsed = json.loads(patch)
        except ValueError as error:
            raise ApiError(400, f"error decoding patch: {error}") from error
        return self._change(old, apply_patch(old, form, parsed), subresource, dry_run)

    def set_status(
        self, old: StoredObject, status: Body, metadata: Body | None = None
    ) -> StoredObject:
        """Set the status of an object, if it still exists. For controllers."""
        now = self._store.get(old.resource, *old.key)
        if now is None or now.uid != old.uid:
            return old
        meta = {**now.meta, **(metadata or {})}
        return self._store.put(old.resource, {**now.body, "metadata": meta, "status": status}, now)

    def set_spec(self, old: StoredObject, spec: Body) -> StoredObject:
        """Set the spec of an object without the rules for clients. For controllers."""
        now = self._store.get(old.resource, *old.key)
        if now is None or now.uid != old.uid:
            return old
        return self._store.put(old.resource, {**now.body, "spec": spec}, now)

    def _change(
        self, old: StoredObject, body: Body, subresource: str, dry_run: bool
    ) -> StoredObject:
        """Replace an object, or remove it if the change completes its deletion. Raises ApiError 409 or 422."""
        meta = body.get("metadata") or {}
        if meta.get("uid", old.uid) != old.uid:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old.uid}"
            raise conflict(old.resource, old.name, why)
        if meta.get("resourceVersion") not in (None, "", old.meta["resourceVersion"]):
            raise conflict(old.resource, old.name)
        made = with_status(old, body) if subresource == "status" else with_spec(old, body)
        _raise_if_invalid(
            old.resource, old.name, [*immutable_changes(old, made), *causes(old.resource, made)]
        )
        if dry_run:
            return StoredObject(old.resource, made, old.revision)
        if is_deletable(made):
            return self._store.remove(old, made)
        return self._store.put(old.resource, made, old)


def _raise_if_invalid(resource: Resource, name: str, violations: list[Cause]) -> None:
    if violations:
        raise invalid(resource, name, violations)

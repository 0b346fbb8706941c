"""From an object and what a request says to the object that follows: patches, the status apart, what must stay."""

from __future__ import annotations

from typing import Any

from hai_backend.testing.kube import defaults
from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError, Cause
from hai_backend.testing.kube.patches import json_patch, merge_patch
from hai_backend.testing.kube.pod_changes import forbidden_change
from hai_backend.testing.kube.stored import Stored
from hai_backend.testing.kube.strategic import strategic_merge
from hai_backend.testing.kube.validate_pod import required

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# What no request changes.
_SETTLED = (
    *("name", "namespace", "uid", "creationTimestamp", "generateName"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "generation"),
)


def patched(old: Stored, form: str, patch: Any) -> Body:
    """What a patch makes of an object. Raises ApiError 400, 415 or 422."""
    whole = {"kind": old.resource.kind, "apiVersion": old.resource.api_version, **old.body}
    if form == JSON_PATCH and isinstance(patch, list):
        return json_patch(whole, patch)
    if form == MERGE_PATCH and isinstance(patch, dict):
        return dict(merge_patch(whole, patch))
    if form == STRATEGIC and old.resource.strategic and isinstance(patch, dict):
        return strategic_merge(whole, patch)
    known = [JSON_PATCH, MERGE_PATCH, *([STRATEGIC] if old.resource.strategic else [])]
    if form in known:
        raise ApiError(
            400, f"error decoding patch: {type(patch).__name__} is not what {form} takes"
        )
    raise ApiError(
        415,
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(known),
    )


def _metadata(old: Stored, new: Body) -> Body:
    """The client's metadata, with what is the server's."""
    own = {k: old.meta[k] for k in (*_SETTLED, "resourceVersion") if k in old.meta}
    theirs = {k: v for k, v in new.items() if k not in _SETTLED and v not in (None, {}, [])}
    return {**theirs, **own}


def status_of(old: Stored, body: Body) -> Body:
    """The object with the status of the body."""
    meta = _metadata(old, {**old.meta, **(body.get("metadata") or {})})
    if "ownerReferences" in old.meta:
        meta["ownerReferences"] = old.meta["ownerReferences"]
    return {**old.body, "metadata": meta, "status": body.get("status") or {}}


def main_of(old: Stored, body: Body) -> Body:
    """The object that the body makes of it, without its status."""
    rest = {k: v for k, v in body.items() if k not in ("kind", "apiVersion", "metadata", "status")}
    if not old.resource.has_status and "status" in body:
        rest["status"] = body["status"]
    made = {"metadata": _metadata(old, body.get("metadata") or {}), **rest}
    made = defaults.refilled(old.resource, old.body, made)
    if old.resource.has_status and "status" in old.body:
        made["status"] = old.body["status"]
    if old.resource.counted and made.get("spec") != old.body.get("spec"):
        made["metadata"] = {**made["metadata"], "generation": old.meta["generation"] + 1}
    return made


def wrongly_changed(old: Stored, made: Body) -> list[Cause]:
    """What must not change."""
    if old.resource.kind == "Pod":
        wrong = forbidden_change(old.body["spec"], made.get("spec") or {})
    elif old.body.get("immutable") and old.body.get("data") != made.get("data"):
        why = "Forbidden: field is immutable when `immutable` is set"
        wrong = [Cause("data", "FieldValueForbidden", why)]
    else:
        wrong = []
    added = set(made["metadata"].get("finalizers") or ()) - set(old.meta.get("finalizers") or ())
    if old.deleting and added:
        why = "Forbidden: no new finalizers can be added if the object is being deleted"
        wrong.append(Cause("metadata.finalizers", "FieldValueForbidden", why))
    if old.resource.kind == "Pod" and not made.get("spec"):
        wrong.append(required("spec"))
    return wrong


def ended(body: Body) -> bool:
    """It was to go, and nothing holds it any more."""
    meta = body["metadata"]
    waits = meta.get("deletionGracePeriodSeconds") or (body.get("spec") or {}).get("finalizers")
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not waits

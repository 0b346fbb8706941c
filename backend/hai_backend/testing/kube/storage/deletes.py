"""Deletes objects, with preconditions, grace periods, finalizers and propagation policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hai_backend.testing.kube.body import Body, dig, revised, stamp
from hai_backend.testing.kube.errors import ApiError, conflict, not_found, success
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.selectors import Selection
from hai_backend.testing.kube.storage.store import Store, StoredObject
from hai_backend.testing.kube.timers import Timers
from hai_backend.testing.kube.validation.defaults import grace_of

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_FINALIZERS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


@dataclass(frozen=True, slots=True)
class Options:
    """DeleteOptions of a request."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    revision: str = ""
    dry_run: bool = False

    @staticmethod
    def read(body: Any, query: Any) -> Options:
        """Read the options from the body and the query; those of the body take precedence.

        Raises ApiError 400 or 422.
        """
        body = body if isinstance(body, dict) else {}
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
        if propagation not in ("", "Background", *_FINALIZERS):
            raise ApiError(
                422, f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: {propagation}'
            )
        if body.get("orphanDependents") or query.get("orphanDependents") == "true":
            propagation = "Orphan"
        return Options(
            *(None if grace is None else int(grace), propagation),
            uid=dig(body, "preconditions.uid", ""),
            revision=dig(body, "preconditions.resourceVersion", ""),
            dry_run="All" in (body.get("dryRun") or []) or query.get("dryRun") == "All",
        )


class Deletes:
    """Deletes one object or many."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def delete(
        self, resource: Resource, namespace: str, name: str, options: Options
    ) -> Body | StoredObject:
        """Delete an object and return the body of the response. Raises ApiError 404 or 409."""
        stored = self._store.get(resource, namespace, name)
        if stored is None:
            raise not_found(resource, name)
        _check(stored, options)
        if options.dry_run:
            return stored if resource.returns_deleted else success(resource, name, stored.uid)
        remaining, deleted = self._start_deletion(stored, options)
        if not deleted or resource.returns_deleted:
            return remaining
        return success(resource, name, stored.uid)

    def delete_many(
        self, resource: Resource, namespace: str, selected: Selection | None, options: Options
    ) -> list[StoredObject]:
        """Delete all selected objects, and return their previous state."""
        selection = [
            s
            for s in self._store.sorted_objects(resource)
            if (not namespace or s.namespace == namespace) and (selected is None or selected(s))
        ]
        for stored in selection:
            now = self._store.get(resource, *stored.key)
            if now is not None and not options.dry_run:
                self._start_deletion(now, options)
        return selection

    def delete_if_current(self, stored: StoredObject, grace: int | None = None) -> None:
        """Delete exactly this object, if it still exists. For controllers."""
        now = self._store.get(stored.resource, *stored.key)
        if now is not None and now.uid == stored.uid:
            self._start_deletion(now, Options(grace=grace))

    def _start_deletion(self, stored: StoredObject, options: Options) -> tuple[StoredObject, bool]:
        """Mark an object as deleted, or remove it if nothing delays that. Return it, and whether it was removed."""
        finalizers = _finalizers(stored, options.propagation)
        has_finalizers = bool(finalizers) or bool(dig(stored.body, "spec.finalizers"))
        grace = _grace(stored, options) if stored.resource.kind == "Pod" else 0
        meta: Body = {"finalizers": finalizers or None}
        if grace is not None and (has_finalizers or stored.resource.kind == "Pod"):
            meta |= self._deletion_metadata(stored, grace)
        made = revised(stored.body, metadata=meta)
        if stored.resource.kind == "Namespace":
            made["status"] = {**made["status"], "phase": "Terminating"}
        remaining = self._store.put(stored.resource, made, stored)
        if has_finalizers or grace is None or grace > 0:
            return remaining, False
        return self._store.remove(remaining, remaining.body), True

    def _deletion_metadata(self, stored: StoredObject, grace: int) -> Body:
        if stored.deleting and grace == stored.meta.get("deletionGracePeriodSeconds"):
            return {}
        ends = stamp(self._timers.now() + grace)
        changes: Body = {"deletionGracePeriodSeconds": grace, "deletionTimestamp": ends}
        if not stored.deleting and "generation" in stored.meta:
            changes["generation"] = stored.meta["generation"] + 1
        return changes


def _check(stored: StoredObject, options: Options) -> None:
    if options.uid and options.uid != stored.uid:
        difference = f"UID in precondition: {options.uid}, UID in object meta: {stored.uid}"
        raise conflict(stored.resource, stored.name, f"Precondition failed: {difference}")
    version = stored.meta["resourceVersion"]
    if options.revision and options.revision != version:
        difference = f"ResourceVersion in precondition: {options.revision}, ResourceVersion in object meta: {version}"
        raise conflict(stored.resource, stored.name, f"Precondition failed: {difference}")


def _finalizers(stored: StoredObject, propagation: str) -> list[str]:
    policy = propagation or stored.resource.propagation
    old = stored.meta.get("finalizers") or []
    if not propagation and (FOREGROUND in old or ORPHAN in old):
        return list(old)
    retained = [f for f in old if f not in (FOREGROUND, ORPHAN)]
    return [*retained, _FINALIZERS[policy]] if policy in _FINALIZERS else retained


def _grace(pod: StoredObject, options: Options) -> int | None:
    """Return the grace period of a pod in seconds; None if the pod is already being deleted with one as short."""
    unscheduled = not dig(pod.body, "spec.nodeName")
    over = dig(pod.body, "status.phase") in ("Succeeded", "Failed")
    grace = 0 if unscheduled or over else options.grace
    if grace is None:
        grace = grace_of(pod.body)
    if not pod.deleting:
        return max(0, grace)
    current_grace = int(pod.meta.get("deletionGracePeriodSeconds") or 0)
    shorter = options.grace is not None and options.grace < current_grace
    return options.grace if shorter else None

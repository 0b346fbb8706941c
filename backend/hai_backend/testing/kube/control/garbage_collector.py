"""The garbage collector, which deletes objects whose owners were deleted."""

from __future__ import annotations

from collections import defaultdict

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, revised
from hai_backend.testing.kube.storage.deletes import FOREGROUND, ORPHAN
from hai_backend.testing.kube.storage.store import Change, StoredObject

ObjectRef = tuple[str, str, str]  # plural, namespace, name


class GarbageCollector:
    """Deletes dependents of deleted owners, in the order of the propagation policy."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._dependents: dict[str, dict[ObjectRef, None]] = defaultdict(dict)  # by the owner's uid
        for resource in api.resources.all:
            api.store.listen(resource, self._on_change)

    def _on_change(self, change: Change) -> None:
        stored = change.stored
        if change.type == "DELETED":
            self._unindex(stored)
            for dependent in self._dependents_of(stored.uid):
                self._collect_if_orphaned(dependent)
            return
        if "ownerReferences" in stored.meta:
            self._index(stored)
        if stored.deleting and stored.meta.get("finalizers"):
            self._process_finalizers(stored)

    def _index(self, stored: StoredObject) -> None:
        for owner in stored.meta["ownerReferences"]:
            self._dependents[owner["uid"]][_ref(stored)] = None
        self._collect_if_orphaned(stored)

    def _unindex(self, stored: StoredObject) -> None:
        """Remove an object from the index, and continue the deletion of owners that wait for it."""
        for owner in stored.meta.get("ownerReferences") or []:
            self._dependents[owner["uid"]].pop(_ref(stored), None)
            if not self._dependents[owner["uid"]]:
                del self._dependents[owner["uid"]]
            owner_object = self._api.store.by_uid(owner["uid"])
            if owner_object is not None and owner_object.deleting:
                self._process_finalizers(owner_object)

    def _dependents_of(self, uid: str) -> list[StoredObject]:
        dependents = (self._api.get(*ref) for ref in self._dependents.get(uid, ()))
        return [s for s in dependents if s is not None and uid in _owner_uids(s)]

    def _collect_if_orphaned(self, stored: StoredObject) -> None:
        """Delete an object if none of its owners exists; otherwise remove its references to deleted owners."""
        current = self._api.latest(stored)
        if current is None:
            return
        owners = current.meta.get("ownerReferences") or []
        remaining = [o for o in owners if self._owner_exists(o, current)]
        if owners and not remaining:
            self._api.deletes.delete_if_current(current)
        elif len(remaining) < len(owners):
            self._api.store.put(
                current.resource,
                revised(current.body, metadata={"ownerReferences": remaining}),
                current,
            )

    def _owner_exists(self, owner: Body, dependent: StoredObject) -> bool:
        existing = self._api.store.by_uid(owner["uid"])
        return existing is not None and existing.namespace in ("", dependent.namespace)

    def _process_finalizers(self, owner: StoredObject) -> None:
        """Execute the finalizers of an object that is being deleted."""
        current = self._api.latest(owner)
        finalizers = current.meta.get("finalizers") or [] if current is not None else []
        if current is None or not current.deleting:
            return
        if ORPHAN in finalizers:
            for dependent in self._dependents_of(current.uid):
                self._remove_owner(dependent, current.uid)
            self._remove_finalizer(current, ORPHAN)
        elif FOREGROUND in finalizers:
            self._delete_dependents_first(current)

    def _delete_dependents_first(self, owner: StoredObject) -> None:
        for dependent in self._dependents_of(owner.uid):
            if not dependent.deleting:
                self._api.deletes.delete_if_current(dependent)
        if not any(_blocks_owner_deletion(d, owner.uid) for d in self._dependents_of(owner.uid)):
            self._remove_finalizer(owner, FOREGROUND)

    def _remove_owner(self, dependent: StoredObject, uid: str) -> None:
        remaining = [o for o in dependent.meta["ownerReferences"] if o["uid"] != uid]
        body = revised(dependent.body, metadata={"ownerReferences": remaining or None})
        self._api.store.put(dependent.resource, body, dependent)
        self._dependents[uid].pop(_ref(dependent), None)

    def _remove_finalizer(self, stored: StoredObject, finalizer: str) -> None:
        remaining = [f for f in stored.meta["finalizers"] if f != finalizer]
        body = revised(stored.body, metadata={"finalizers": remaining or None})
        if remaining:
            self._api.store.put(stored.resource, body, stored)
        else:
            self._api.store.remove(stored, body)


def _ref(stored: StoredObject) -> ObjectRef:
    return stored.resource.plural, *stored.key


def _owner_uids(stored: StoredObject) -> set[str]:
    return {o["uid"] for o in stored.meta.get("ownerReferences") or []}


def _blocks_owner_deletion(dependent: StoredObject, uid: str) -> bool:
    references = dependent.meta.get("ownerReferences") or []
    return any(o["uid"] == uid and o.get("blockOwnerDeletion") for o in references)

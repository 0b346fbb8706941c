"""The garbage collector: what goes because its owner goes."""

from __future__ import annotations

from collections import defaultdict

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, revised
from hai_backend.testing.kube.storage.deletes import FOREGROUND, ORPHAN
from hai_backend.testing.kube.storage.store import Change, Stored

Place = tuple[str, str, str]  # plural, namespace, name


class GarbageCollector:
    """Deletes what nobody owns any more, in the order that was asked for."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._dependents: dict[str, dict[Place, None]] = defaultdict(dict)  # by the owner's uid
        for resource in api.resources.all:
            api.store.listen(resource, self._hear)

    def _hear(self, change: Change) -> None:
        stored = change.stored
        if change.type == "DELETED":
            self._forget(stored)
            for dependent in self._of(stored.uid):
                self._judge(dependent)
            return
        if "ownerReferences" in stored.meta:
            self._learn(stored)
        if stored.deleting and stored.meta.get("finalizers"):
            self._release(stored)

    def _learn(self, stored: Stored) -> None:
        for owner in stored.meta["ownerReferences"]:
            self._dependents[owner["uid"]][_place(stored)] = None
        self._judge(stored)

    def _forget(self, stored: Stored) -> None:
        """Its owners may have waited for it."""
        for owner in stored.meta.get("ownerReferences") or []:
            self._dependents[owner["uid"]].pop(_place(stored), None)
            if not self._dependents[owner["uid"]]:
                del self._dependents[owner["uid"]]
            waiting = self._api.store.by_uid(owner["uid"])
            if waiting is not None and waiting.deleting:
                self._release(waiting)

    def _of(self, uid: str) -> list[Stored]:
        found = (self._api.get(*place) for place in self._dependents.get(uid, ()))
        return [s for s in found if s is not None and uid in _owners(s)]

    def _judge(self, stored: Stored) -> None:
        """Without any owner left it goes; of several, those that are gone are struck out."""
        now = self._api.latest(stored)
        if now is None:
            return
        owners = now.meta.get("ownerReferences") or []
        left = [o for o in owners if self._exists(o, now)]
        if owners and not left:
            self._api.deletes.end(now)
        elif len(left) < len(owners):
            self._api.store.put(
                now.resource, revised(now.body, metadata={"ownerReferences": left}), now
            )

    def _exists(self, owner: Body, dependent: Stored) -> bool:
        found = self._api.store.by_uid(owner["uid"])
        return found is not None and found.namespace in ("", dependent.namespace)

    def _release(self, owner: Stored) -> None:
        """Do what the finalizers of an object wait for."""
        now = self._api.latest(owner)
        held = now.meta.get("finalizers") or [] if now is not None else []
        if now is None or not now.deleting:
            return
        if ORPHAN in held:
            for dependent in self._of(now.uid):
                self._disown(dependent, now.uid)
            self._strike(now, ORPHAN)
        elif FOREGROUND in held:
            self._foreground(now)

    def _foreground(self, owner: Stored) -> None:
        for dependent in self._of(owner.uid):
            if not dependent.deleting:
                self._api.deletes.end(dependent)
        if not any(_blocks(d, owner.uid) for d in self._of(owner.uid)):
            self._strike(owner, FOREGROUND)

    def _disown(self, dependent: Stored, uid: str) -> None:
        left = [o for o in dependent.meta["ownerReferences"] if o["uid"] != uid]
        body = revised(dependent.body, metadata={"ownerReferences": left or None})
        self._api.store.put(dependent.resource, body, dependent)
        self._dependents[uid].pop(_place(dependent), None)

    def _strike(self, stored: Stored, finalizer: str) -> None:
        left = [f for f in stored.meta["finalizers"] if f != finalizer]
        body = revised(stored.body, metadata={"finalizers": left or None})
        if left:
            self._api.store.put(stored.resource, body, stored)
        else:
            self._api.store.remove(stored, body)


def _place(stored: Stored) -> Place:
    return stored.resource.plural, *stored.key


def _owners(stored: Stored) -> set[str]:
    return {o["uid"] for o in stored.meta.get("ownerReferences") or []}


def _blocks(dependent: Stored, uid: str) -> bool:
    rows = dependent.meta.get("ownerReferences") or []
    return any(o["uid"] == uid and o.get("blockOwnerDeletion") for o in rows)

"""A cache of the objects of one kind. Changes that arrive twice, late or out of order have no effect.

Objects are identified by uid, because a name may be used again. Of two versions of an object, the one with the higher
resourceVersion counts. A list is complete up to its version: older changes that arrive after it are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hai_backend.kube_cache.source import DELETED, Body

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """The value of an object before and after a change. None means that the object did not or does not exist."""

    uid: str
    before: T | None
    after: T | None


@dataclass(frozen=True, slots=True)
class CachedObject(Generic[T]):
    """One version of an object, reduced to the value that `read` of the cache returned."""

    uid: str
    version: int
    value: T


class ObjectCache(Generic[T]):
    """The cached objects by uid.

    `read` reduces an object to the needed value. A change that does not affect this value is not reported.
    """

    def __init__(self, read: Callable[[Body], T]) -> None:
        self._read = read
        self._objects: dict[str, CachedObject[T]] = {}
        # versions of deleted objects by uid, until a list is newer
        self._deleted: dict[str, int] = {}
        self._listed = 0

    def get(self, uid: str) -> T | None:
        """Return the value of an object, or None if it does not exist."""
        found = self._objects.get(uid)
        return found.value if found is not None else None

    def values(self) -> Iterable[T]:
        """Return the values of all objects."""
        return (observed.value for observed in self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def read_item(self, body: Body) -> CachedObject[T]:
        """Convert one object of a list. The cache does not change."""
        meta = body["metadata"]
        return CachedObject(meta["uid"], int(meta["resourceVersion"]), self._read(body))

    def apply_change(self, kind: str, body: Body) -> Change[T] | None:
        """Apply a change of the watch. Return None if no value has changed."""
        meta = body["metadata"]
        uid, version = meta["uid"], int(meta["resourceVersion"])
        current = self._objects.get(uid)
        if version <= self._listed or uid in self._deleted:
            return None
        if current is not None and version < current.version + (kind != DELETED):
            return None
        if kind == DELETED:
            return self._apply_deletion(uid, version)
        return self._put(CachedObject(uid, version, self._read(body)))

    def apply_list(self, items: Mapping[str, CachedObject[T]], version: int) -> list[Change[T]]:
        """Apply a complete list of this version, and return the changes. Newer objects in the cache are kept."""
        if version < self._listed:
            self._forget_versions()
        self._listed = version
        self._deleted = {uid: v for uid, v in self._deleted.items() if v > version}
        missing = [
            uid
            for uid, observed in self._objects.items()
            if uid not in items and observed.version <= version
        ]
        changes = [self._remove(uid) for uid in missing]
        for uid, observed in items.items():
            current = self._objects.get(uid)
            if uid not in self._deleted and (current is None or current.version < observed.version):
                changes.append(self._put(observed))
        return [change for change in changes if change is not None]

    def _forget_versions(self) -> None:
        """Treat all cached versions as older than the list, because the cluster was restored from a backup."""
        self._deleted.clear()
        self._objects = {
            uid: replace(observed, version=0) for uid, observed in self._objects.items()
        }

    def _put(self, observed: CachedObject[T]) -> Change[T] | None:
        before = self._objects.get(observed.uid)
        if before is not None and before.value == observed.value:
            self._objects[observed.uid] = CachedObject(observed.uid, observed.version, before.value)
            return None
        self._objects[observed.uid] = observed
        return Change(observed.uid, before.value if before is not None else None, observed.value)

    def _apply_deletion(self, uid: str, version: int) -> Change[T] | None:
        self._deleted[uid] = version
        return self._remove(uid)

    def _remove(self, uid: str) -> Change[T] | None:
        current = self._objects.pop(uid, None)
        return Change(uid, current.value, None) if current is not None else None

"""What is known of one kind of object. Pure: whatever comes twice, late or out of order changes nothing.

Objects are told apart by uid, not by name: a name may be used again. Of two things that are said of one object, the one
with the higher resourceVersion counts. A list says everything up to its version: after it, older news are no news.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hai_backend.watch.source import DELETED, Body

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """An object as it was and as it is; None: it was not, or is not, there."""

    uid: str
    before: T | None
    after: T | None


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """An object at one version, with no more of it than is needed."""

    uid: str
    version: int
    value: T


class ObjectCache(Generic[T]):
    """`read` takes from an object what is worth keeping; objects that read alike count as unchanged."""

    def __init__(self, read: Callable[[Body], T]) -> None:
        self._read = read
        self._seen: dict[str, Seen[T]] = {}
        self._buried: dict[str, int] = {}  # uid -> version; until a list shows it, too
        self._listed = 0

    def get(self, uid: str) -> T | None:
        """What is known of an object; None when it is not there."""
        found = self._seen.get(uid)
        return found.value if found is not None else None

    def values(self) -> Iterable[T]:
        """All objects."""
        return (seen.value for seen in self._seen.values())

    def __len__(self) -> int:
        return len(self._seen)

    def look(self, body: Body) -> Seen[T]:
        """One object of a list."""
        meta = body["metadata"]
        return Seen(meta["uid"], int(meta["resourceVersion"]), self._read(body))

    def take(self, kind: str, body: Body) -> Change[T] | None:
        """Something was said of an object; None when that is no news."""
        meta = body["metadata"]
        uid, version = meta["uid"], int(meta["resourceVersion"])
        known = self._seen.get(uid)
        if version <= self._listed or uid in self._buried:
            return None
        if known is not None and version < known.version + (kind != DELETED):
            return None
        if kind == DELETED:
            return self._bury(uid, version)
        return self._put(Seen(uid, version, self._read(body)))

    def listed(self, items: Mapping[str, Seen[T]], version: int) -> list[Change[T]]:
        """Everything that there was at this version; what is known to be newer stays."""
        if version < self._listed:
            self._age()
        self._listed = version
        self._buried = {uid: v for uid, v in self._buried.items() if v > version}
        missing = [
            uid for uid, seen in self._seen.items() if uid not in items and seen.version <= version
        ]
        changes = [self._remove(uid) for uid in missing]
        for uid, seen in items.items():
            known = self._seen.get(uid)
            if uid not in self._buried and (known is None or known.version < seen.version):
                changes.append(self._put(seen))
        return [change for change in changes if change is not None]

    def _age(self) -> None:
        """The cluster's own store was put back to an earlier day: versions are counted anew, ours are all older."""
        self._buried.clear()
        self._seen = {uid: replace(seen, version=0) for uid, seen in self._seen.items()}

    def _put(self, seen: Seen[T]) -> Change[T] | None:
        before = self._seen.get(seen.uid)
        if before is not None and before.value == seen.value:
            self._seen[seen.uid] = Seen(seen.uid, seen.version, before.value)
            return None
        self._seen[seen.uid] = seen
        return Change(seen.uid, before.value if before is not None else None, seen.value)

    def _bury(self, uid: str, version: int) -> Change[T] | None:
        self._buried[uid] = version
        return self._remove(uid)

    def _remove(self, uid: str) -> Change[T] | None:
        known = self._seen.pop(uid, None)
        return Change(uid, known.value, None) if known is not None else None

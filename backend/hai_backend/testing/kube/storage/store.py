"""Stores all objects with a counter of revisions, and notifies controllers and watches of changes.

An object is encoded at most once; lists and watches only join the bytes. Controllers are notified of changes in order,
after the request that caused them, as with a watch.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.resources import Resource, Resources

Key = tuple[str, str]  # namespace, name
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class StoredObject:
    """An object at one revision. As in lists of the real server, its body has no kind and apiVersion."""

    __slots__ = ("_encoded_body", "body", "key", "resource", "revision")

    def __init__(self, resource: Resource, body: Body, revision: int) -> None:
        meta = body["metadata"]
        self.resource = resource
        self.body = body
        self.revision = revision
        self.key: Key = (meta.get("namespace", ""), meta["name"])
        self._encoded_body: bytes | None = None

    @property
    def encoded_body(self) -> bytes:
        """The encoded body, computed at the first access."""
        if self._encoded_body is None:
            self._encoded_body = _encode(self.body).encode()
        return self._encoded_body

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def meta(self) -> Body:
        meta: Body = self.body["metadata"]
        return meta

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.body["metadata"]

    def encoded(self) -> bytes:
        """Return the encoded object with kind and apiVersion, as in the response to a get."""
        head = f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'
        return head.encode() + self.encoded_body[1:]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an object, of type ADDED, MODIFIED or DELETED. For DELETED, `stored` is the last state."""

    type: str
    stored: StoredObject
    previous: StoredObject | None

    @property
    def revision(self) -> int:
        return self.stored.revision


class History:
    """The newest changes of one kind, numbered. The history has all changes after the revision `oldest`."""

    def __init__(self, window: int) -> None:
        self._changes: deque[Change] = deque()
        self._window = window
        self._first = 0  # number of the first change that is still kept
        self.oldest = 0
        self.readers: set[Callable[[], None]] = set()

    @property
    def first(self) -> int:
        return self._first

    @property
    def end(self) -> int:
        """The number of the next change."""
        return self._first + len(self._changes)

    def append(self, change: Change) -> None:
        if len(self._changes) >= self._window:
            self._drop()
        self._changes.append(change)
        for wake in tuple(self.readers):
            wake()

    def at(self, number: int) -> Change:
        return self._changes[number - self._first]

    def after(self, revision: int) -> int:
        """Return the number of the first change after a revision."""
        number = self.end
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            number -= 1
        return number

    def expire(self, revision: int) -> None:
        """Delete all changes so far. Watches that have read them continue."""
        self._first = self.end
        self._changes.clear()
        self.oldest = revision

    def _drop(self) -> None:
        self.oldest = self._changes.popleft().revision
        self._first += 1


Listener = Callable[[Change], None]


class Store:
    """The object store, in place of etcd and the watch cache of a real server."""

    def __init__(self, resources: Resources, window: int = 10_000) -> None:
        self.resources = resources
        self.revision = 1
        self.histories = {r: History(window) for r in resources.all}
        self.count_by_namespace: Counter[str] = Counter()
        self._objects: dict[Resource, dict[Key, StoredObject]] = {r: {} for r in resources.all}
        self._by_uid: dict[str, StoredObject] = {}
        self._listeners: dict[Resource, list[Listener]] = {r: [] for r in resources.all}
        self._undelivered: deque[Change] = deque()
        self.failures: list[
            BaseException
        ] = []  # of controllers; the cluster raises them when it ends
        self._write_waiters: list[asyncio.Future[None]] = []

    def get(self, resource: Resource, namespace: str, name: str) -> StoredObject | None:
        return self._objects[resource].get((namespace, name))

    def by_uid(self, uid: str) -> StoredObject | None:
        return self._by_uid.get(uid)

    def sorted_objects(self, resource: Resource) -> list[StoredObject]:
        """Return all objects of a kind in the order of the keys in etcd."""
        objects = self._objects[resource]
        return [objects[key] for key in sorted(objects)]

    def unsorted_objects(self, resource: Resource) -> Iterator[StoredObject]:
        """Yield all objects of a kind in any order. The store must not change meanwhile."""
        return iter(self._objects[resource].values())

    def count(self, resource: Resource) -> int:
        return len(self._objects[resource])

    def put(self, resource: Resource, body: Body, previous: StoredObject | None) -> StoredObject:
        """Store an object at a new revision, and return it. If the body has not changed, return `previous`."""
        if previous is not None and _equal(body, previous.body):
            return previous
        made = self._at_next_revision(resource, body)
        self._objects[resource][made.key] = made
        self._by_uid[made.uid] = made
        if previous is None:
            self.count_by_namespace[made.namespace] += 1
        self._publish(Change("ADDED" if previous is None else "MODIFIED", made, previous))
        return made

    def remove(self, stored: StoredObject, body: Body) -> StoredObject:
        """Remove an object. `body` is its last state, which watches get with a new revision."""
        last = self._at_next_revision(stored.resource, body)
        del self._objects[stored.resource][stored.key]
        del self._by_uid[stored.uid]
        self.count_by_namespace[stored.namespace] -= 1
        self._publish(Change("DELETED", last, stored))
        return last

    def listen(self, resource: Resource, listener: Listener) -> None:
        """Call `listener` with each change of objects of a kind, in the next iteration of the event loop or later."""
        self._listeners[resource].append(listener)

    async def next_write(self) -> None:
        """Wait for the next write."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._write_waiters.append(waiter)
        await waiter

    @property
    def idle(self) -> bool:
        """Everybody has heard everything."""
        return not self._undelivered

    def expire(self, *resources: Resource) -> None:
        """Delete the history of these kinds, or of all kinds. A watch from an old revision then gets 410."""
        for resource in resources or self.resources.all:
            self.histories[resource].expire(self.revision)

    def _at_next_revision(self, resource: Resource, body: Body) -> StoredObject:
        self.revision += 1
        meta = {**body["metadata"], "resourceVersion": str(self.revision)}
        return StoredObject(resource, {**body, "metadata": meta}, self.revision)

    def _publish(self, change: Change) -> None:
        self.histories[change.stored.resource].append(change)
        while self._write_waiters:
            waiter = self._write_waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
        if self._listeners[change.stored.resource]:
            if not self._undelivered:
                asyncio.get_running_loop().call_soon(self._notify)
            self._undelivered.append(change)

    def _notify(self) -> None:
        """Call the listeners for at most 200 changes at a time, so that many writes do not block the event loop."""
        for _ in range(min(len(self._undelivered), 200)):
            change = self._undelivered.popleft()
            for listener in self._listeners[change.stored.resource]:
                try:
                    listener(change)
                except Exception as error:
                    self.failures.append(error)
        if self._undelivered:
            asyncio.get_running_loop().call_soon(self._notify)


def _equal(body: Body, old: Body) -> bool:
    if body.keys() != old.keys() or any(body[k] != old[k] for k in body if k != "metadata"):
        return False
    new_meta, previous_meta = dict(body["metadata"]), dict(old["metadata"])
    new_meta.pop("resourceVersion", None)
    previous_meta.pop("resourceVersion", None)
    return new_meta == previous_meta

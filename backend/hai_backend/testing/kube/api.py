"""The API without HTTP, which the server and the controllers share."""

from __future__ import annotations

from hai_backend.testing.kube.resources import Resource, Resources
from hai_backend.testing.kube.storage.deletes import Deletes
from hai_backend.testing.kube.storage.store import Store, StoredObject
from hai_backend.testing.kube.storage.writes import Writes
from hai_backend.testing.kube.timers import Timers


class Api:
    """The stored objects, and the operations that change them."""

    def __init__(
        self, timers: Timers, custom: tuple[Resource, ...] = (), window: int = 10_000
    ) -> None:
        self.timers = timers
        self.resources = Resources(custom)
        self.store = Store(self.resources, window)
        self.writes = Writes(self.store, timers)
        self.deletes = Deletes(self.store, timers)

    def get(self, plural: str, namespace: str, name: str) -> StoredObject | None:
        """Return the current state of an object; None if it does not exist."""
        return self.store.get(self.resources[plural], namespace, name)

    def latest(self, stored: StoredObject) -> StoredObject | None:
        """Return the current state of the same object; None if it was deleted, even if a new object has its name."""
        now = self.store.get(stored.resource, *stored.key)
        return now if now is not None and now.uid == stored.uid else None

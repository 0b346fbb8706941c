"""The workspaces that callers see: whose they are, what they may hold, and which tasks pin their revisions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Conflict, Exhausted, NotFound
from hai_backend.domain.task import Task
from hai_backend.domain.workspace import Workspace, parse_reference
from hai_backend.loops.clock import Clock
from hai_backend.services.ports import Ledger
from hai_backend.services.rules import NAME
from hai_backend.workspaces.leases import Leases
from hai_backend.workspaces.rooms import Key, Room, Rooms


class Workspaces:
    """What may not be seen does not exist. `root` is where they lie; `quota_bytes`: what a user's workspaces may hold together; 0: no limit."""

    def __init__(
        self, root: Path, ledger: Ledger, directory: Directory, clock: Clock, quota_bytes: int = 0
    ) -> None:
        self.rooms = Rooms(root, lambda user: directory.user(user).uid)
        self.leases = Leases()
        self.clock = clock
        self._ledger = ledger
        self._directory = directory
        self._quota_bytes = quota_bytes

    def key(self, identity: Identity, name: str, user: str = "") -> Key:
        """Which one is meant. Raises NotFound; a name that no workspace can have is not looked for."""
        owner = user or identity.name
        if owner != identity.name and not identity.operates:
            raise NotFound(f"there is no workspace {name[:64]!r} of {owner[:64]!r}")
        if not NAME.fullmatch(name):
            raise NotFound(f"there is no workspace {name[:64]!r}; `hai workspace list` shows yours")
        return self._directory.user(owner).name, name

    @asynccontextmanager
    async def open(self, identity: Identity, name: str, user: str = "") -> AsyncIterator[Room]:
        """One that the caller sees, open. Raises NotFound."""
        async with self.rooms.open(self.key(identity, name, user)) as room:
            yield room

    async def visible(self, identity: Identity, user: str) -> list[Workspace]:
        """Of a user, or `*` of all. Raises NotFound."""
        everybody = user == "*" and identity.operates
        owner = "" if everybody else self.key(identity, "x", user)[0]
        found = []
        for key in await self.rooms.names(owner):
            async with self.rooms.open(key) as room:
                found.append(await self.described(room))
        return found

    async def described(self, room: Room) -> Workspace:
        """As people see it."""
        known = await self.rooms.described(room)
        lease = self.leases.of(room.key, self.clock.now())
        return replace(known, quota_bytes=self._quota_bytes, lease=lease)

    async def room_left(self, user: str) -> int:
        """Bytes that a user's workspaces may still take; raises nothing, and may be less than 0."""
        if not self._quota_bytes:
            return 1 << 62
        used = 0
        for key in await self.rooms.names(user):
            async with self.rooms.open(key) as room:
                used += await self.rooms.stored(room)
        return self._quota_bytes - used

    def over_quota(self, user: str, wanted: int, left: int) -> Exhausted:
        """The change would take more than there is."""
        return Exhausted(
            f"the change brings {wanted} bytes, and of the {self._quota_bytes} that workspaces of {user} may hold "
            f"{max(left, 0)} are left; remove files or whole workspaces, older versions go by themselves",
            reason="QUOTA_EXCEEDED",
        )

    def pins(self, key: Key) -> dict[int, list[int]]:
        """Unfinished tasks on revisions of a workspace, by revision."""
        found: dict[int, list[int]] = {}
        for task in self._ledger.unfinished().values():
            if (pinned := pin_of(task)) is not None and pinned[0] == key:
                found.setdefault(pinned[1], []).append(task.id)
        return found

    async def delete(self, identity: Identity, name: str, user: str) -> None:
        """Remove it. Raises NotFound, or Conflict while tasks or a client need it."""
        key = self.key(identity, name, user)
        pinned = sorted(task for tasks in self.pins(key).values() for task in tasks)
        if pinned:
            raise Conflict(
                f"unfinished tasks run on workspace {name}: {_listed(pinned)}; stop them first",
                reason="PINNED",
            )
        async with self.rooms.open(key):
            pass
        await self.rooms.delete(key)


def pin_of(task: Task) -> tuple[Key, int] | None:
    """The workspace and revision that a task runs on; None: it runs somewhere else."""
    reference = parse_reference(task.spec.spec.workspace)
    return None if reference is None else ((task.user, reference.name), reference.revision)


def _listed(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more

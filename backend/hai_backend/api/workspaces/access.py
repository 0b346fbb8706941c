"""The workspaces that callers see: whose they are, what they may hold, and which tasks pin their revisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from hai_backend.api.request.rules import NAME
from hai_backend.api.server import audit
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, require_reach
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.errors import Conflict, Exhausted, HaiError, NotFound
from hai_backend.domain.formatting import format_list
from hai_backend.domain.task import Task
from hai_backend.domain.workspace import Workspace, parse_reference
from hai_backend.store.base import AuditRow
from hai_backend.workspaces import garbage
from hai_backend.workspaces.leases import Leases
from hai_backend.workspaces.registry import Key, OpenWorkspace, WorkspaceRegistry

log = structlog.get_logger(__name__)

_GB = 1 << 30
_COLLECT_SECONDS = 3600.0
_SETTLED_SECONDS = 24 * 3600.0  # from then on an hour keeps one revision of what programs wrote
_LEAST = 10  # revisions that stay however old they are: clocks are wrong, and people away


@dataclass(frozen=True, slots=True)
class Keeping:
    """What the workspaces of one user may hold together (0: no limit), and how long old revisions stay."""

    quota_bytes: int = 0
    seconds: float = 30 * 24 * 3600.0


DEFAULTS = Keeping()


class Workspaces:
    """What may not be seen does not exist. `root` is where they lie."""

    def __init__(
        self,
        root: Path,
        unfinished: Callable[[], Mapping[int, Task]],
        directory: Directory,
        clock: Clock,
        record: audit.Record,
        keeping: Keeping = DEFAULTS,
    ) -> None:
        self.rooms = WorkspaceRegistry(root, lambda user: directory.user(user).uid)
        self.leases = Leases()
        self.clock = clock
        self._unfinished = unfinished
        self._directory = directory
        self._keeping = keeping
        self._record = record
        self._collecting: dict[Key, asyncio.Task[None]] = {}
        self._collected: dict[Key, float] = {}

    def key(self, identity: Identity, name: str, user: str = "") -> Key:
        """Which one is meant. Raises NotFound; a name that no workspace can have is not looked for."""
        owner = user or identity.name
        if owner != identity.name and not identity.operates:
            raise NotFound(f"there is no workspace {name[:64]!r} of {owner[:64]!r}")
        if not NAME.fullmatch(name):
            raise NotFound(f"there is no workspace {name[:64]!r}; `hai workspace list` shows yours")
        return self._directory.user(owner).name, name

    @asynccontextmanager
    async def open(
        self, identity: Identity, name: str, user: str = ""
    ) -> AsyncIterator[OpenWorkspace]:
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

    async def described(self, room: OpenWorkspace) -> Workspace:
        """As people see it."""
        known = await self.rooms.described(room)
        lease = self.leases.of(room.key, self.clock.now())
        blind = await self.rooms.work(room.files.path, room.files.is_case_insensitive)
        quota = self.quota(room.key[0])
        return replace(known, quota_bytes=quota, lease=lease, case_insensitive=blind)

    def quota(self, user: str) -> int:
        """What the workspaces of a user may hold together: the setting, or what a right says; 0: no limit."""
        allowed = self._directory.as_allowed(self._directory.user(user), self.clock.now())
        begin = f"{Right.WORKSPACE_GB}:"
        granted = [int(r.removeprefix(begin)) for r in allowed.rights if r.startswith(begin)]
        return max(granted) * _GB if granted else self._keeping.quota_bytes

    async def room_left(self, user: str) -> int:
        """Bytes that a user's workspaces may still take beside what is announced; may be less than 0."""
        quota = self.quota(user)
        if not quota:
            return 1 << 62
        used = 0
        for key in await self.rooms.names(user):
            async with self.rooms.open(key) as room:
                used += await self.rooms.stored(room) + room.coming
        return quota - used

    def over_quota(self, user: str, wanted: int, left: int) -> Exhausted:
        """The change would take more than there is."""
        return Exhausted(
            f"the change brings {wanted} bytes, and of the {self.quota(user)} that workspaces of {user} may hold "
            f"{max(left, 0)} are left; remove files, tags of old revisions, or whole workspaces",
            reason="QUOTA_EXCEEDED",
        )

    def pins(self, key: Key) -> dict[int, list[int]]:
        """Unfinished tasks on revisions of a workspace, by revision."""
        found: dict[int, list[int]] = {}
        for task in self._unfinished().values():
            if (pinned := pin_of(task)) is not None and pinned[0] == key:
                found.setdefault(pinned[1], []).append(task.id)
        return found

    async def delete(self, identity: Identity, name: str, user: str) -> None:
        """Remove it. Raises NotFound, or Conflict while tasks or a client need it."""
        key = self.key(identity, name, user)
        require_reach(identity, key[0], f"workspace {name}")
        pinned = sorted(task for tasks in self.pins(key).values() for task in tasks)
        if pinned:
            raise Conflict(
                f"unfinished tasks run on workspace {name}: {format_list(pinned)}; stop them first",
                reason="PINNED",
            )
        await self.rooms.delete(key)

    async def collect(self, room: OpenWorkspace, *, full: bool = False) -> None:
        """Let go of what nobody needs any more, and of what was replaced long ago; of all that was replaced when the
        storage is `full`."""
        keep_seconds, least = (0.0, 1) if full else (self._keeping.seconds, _LEAST)
        pins = self.pins(room.key)
        async with room.changing:
            collected = await self.rooms.work(
                room.files.path,
                garbage.collect,
                room.files,
                pinned=frozenset(pins),
                running=frozenset(task for tasks in pins.values() for task in tasks),
                before=self.clock.now() - keep_seconds,
                least=least,
                settled=self.clock.now() - _SETTLED_SECONDS,
            )
        room.stored = None
        if collected.revisions:
            what = f"deleted revisions={collected.revisions} contents={collected.contents}"
            row = AuditRow(
                self.clock.now(),
                audit.SYSTEM,
                audit.Action.COLLECT_REVISIONS,
                "/".join(room.key),
                what,
                "OK",
            )
            await audit.store(self._record, row)

    def collect_now_and_then(self, key: Key) -> None:
        """After a change: at most once an hour."""
        if self.clock.now() - self._collected.get(key, 0.0) > _COLLECT_SECONDS:
            self.collect_soon(key)

    def collect_soon(self, key: Key) -> None:
        """Beside everything else; one that is under way already has to end first."""
        self._collected[key] = self.clock.now()
        before = self._collecting.get(key)
        work = asyncio.ensure_future(self._collect(key, before))
        self._collecting[key] = work
        work.add_done_callback(lambda done: self._forget(key, done))

    async def _collect(self, key: Key, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        try:
            async with self.rooms.open(key) as room:
                await self.collect(room)
        except HaiError as error:
            log.warning("a workspace was not tidied", workspace="/".join(key), why=str(error))

    def _forget(self, key: Key, done: asyncio.Task[None]) -> None:
        if self._collecting.get(key) is done:
            del self._collecting[key]

    async def keep_tidy(self) -> None:
        """Never returns. Of workspaces into which nobody pushes any more, too, what a broken push left goes."""
        while True:
            before = self.clock.now() - garbage.LEFT_SECONDS
            try:
                for key in await self.rooms.left_over(before):
                    self.collect_soon(key)
            except HaiError as error:
                log.warning("workspaces are not tidied", why=str(error))
            await asyncio.sleep(_COLLECT_SECONDS)

    async def tidied(self) -> None:
        """Return when nothing is being let go of."""
        await asyncio.gather(*self._collecting.values(), return_exceptions=True)

    async def close(self) -> None:
        """Let others have them."""
        for work in list(self._collecting.values()):
            work.cancel()
        await self.tidied()
        await self.rooms.close()


def pin_of(task: Task) -> tuple[Key, int] | None:
    """The workspace and revision that a task runs on; None: it runs somewhere else."""
    reference = parse_reference(task.spec.spec.workspace)
    return None if reference is None else ((task.user, reference.name), reference.revision)

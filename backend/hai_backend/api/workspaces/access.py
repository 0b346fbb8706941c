"""Access to workspaces: who may see them, their quota, and the tasks that pin their revisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from hai_backend.api.audit.rows import SYSTEM, Action, AddRows, store_row
from hai_backend.api.request.field_checks import NAME
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, require_reach
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.errors import Conflict, Exhausted, HaiError, NotFound
from hai_backend.domain.formatting import format_list
from hai_backend.domain.task import Task
from hai_backend.domain.workspace import Workspace, parse_reference
from hai_backend.store.base import AuditRow
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces.leases import WorkspaceLeases
from hai_backend.workspaces.registry import Key, OpenWorkspace, WorkspaceRegistry

log = structlog.get_logger(__name__)

_GB = 1 << 30
_COLLECT_SECONDS = 3600.0
_THIN_AFTER_SECONDS = 24 * 3600.0  # older revisions by programs are reduced to one per hour
_MIN_REVISIONS = 10  # revisions that are retained however old they are


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """The limit for all workspaces of a user together (0 means no limit), and how long old revisions are retained."""

    quota_bytes: int = 0
    retention_seconds: float = 30 * 24 * 3600.0


DEFAULT_LIMITS = WorkspaceLimits()


class Workspaces:
    """The workspaces below `root`. A workspace that the caller may not see is reported as not found."""

    def __init__(
        self,
        root: Path,
        unfinished: Callable[[], Mapping[int, Task]],
        directory: Directory,
        clock: Clock,
        add_audit_rows: AddRows,
        limits: WorkspaceLimits = DEFAULT_LIMITS,
    ) -> None:
        self.registry = WorkspaceRegistry(root, lambda user: directory.user(user).uid)
        self.leases = WorkspaceLeases()
        self.clock = clock
        self._unfinished = unfinished
        self._directory = directory
        self._limits = limits
        self._add_audit_rows = add_audit_rows
        self._collections: dict[Key, asyncio.Task[None]] = {}
        self._collected_at: dict[Key, float] = {}

    def key(self, identity: Identity, name: str, user: str = "") -> Key:
        """Return the key of a workspace, which need not exist. Raises NotFound for an impossible name."""
        owner = user or identity.name
        if owner != identity.name and not identity.operates:
            raise NotFound(f"workspace {name[:64]!r} of {owner[:64]!r} not found")
        if not NAME.fullmatch(name):
            raise NotFound(f"workspace {name[:64]!r} not found; `hai workspace list` shows yours")
        return self._directory.user(owner).name, name

    @asynccontextmanager
    async def open(
        self, identity: Identity, name: str, user: str = ""
    ) -> AsyncIterator[OpenWorkspace]:
        """Open a workspace that the caller may see. Raises NotFound."""
        async with self.registry.open(self.key(identity, name, user)) as workspace:
            yield workspace

    async def visible(self, identity: Identity, user: str) -> list[Workspace]:
        """Return the workspaces of a user, or of all users for `*`. Raises NotFound."""
        all_users = user == "*" and identity.operates
        owner = "" if all_users else self.key(identity, "x", user)[0]
        found = []
        for key in await self.registry.list_names(owner):
            async with self.registry.open(key) as workspace:
                found.append(await self.describe(workspace))
        return found

    async def describe(self, workspace: OpenWorkspace) -> Workspace:
        """Describe a workspace, with quota and lease."""
        described = await self.registry.describe(workspace)
        lease = self.leases.get(workspace.key, self.clock.now())
        case_insensitive = await self.registry.run(
            workspace.files.path, workspace.files.is_case_insensitive
        )
        quota = self.quota(workspace.key[0])
        return replace(described, quota_bytes=quota, lease=lease, case_insensitive=case_insensitive)

    def quota(self, user: str) -> int:
        """Return the limit for all workspaces of a user, from a right or the setting. 0 means no limit."""
        allowed = self._directory.with_current_rights(self._directory.user(user), self.clock.now())
        prefix = f"{Right.WORKSPACE_GB}:"
        granted = [int(r.removeprefix(prefix)) for r in allowed.rights if r.startswith(prefix)]
        return max(granted) * _GB if granted else self._limits.quota_bytes

    async def available_bytes(self, user: str) -> int:
        """Return how many bytes a user may still store after the running pushes. May be negative."""
        quota = self.quota(user)
        if not quota:
            return 1 << 62
        used = 0
        for key in await self.registry.list_names(user):
            async with self.registry.open(key) as workspace:
                used += await self.registry.stored_bytes(workspace) + workspace.announced_bytes
        return quota - used

    def quota_exceeded(self, user: str, needed_bytes: int, available_bytes: int) -> Exhausted:
        return Exhausted(
            f"the change needs {needed_bytes} bytes; of the quota of {user} ({self.quota(user)} bytes), "
            f"{max(available_bytes, 0)} are left; remove files, tags of old revisions, or workspaces",
            reason="QUOTA_EXCEEDED",
        )

    def pins(self, key: Key) -> dict[int, list[int]]:
        """Return the unfinished tasks that run on a workspace, by revision."""
        found: dict[int, list[int]] = {}
        for task in self._unfinished().values():
            if (pinned := pin_of(task)) is not None and pinned[0] == key:
                found.setdefault(pinned[1], []).append(task.id)
        return found

    async def delete(self, identity: Identity, name: str, user: str) -> None:
        """Delete a workspace. Raises NotFound, or Conflict while tasks or a client use it."""
        key = self.key(identity, name, user)
        require_reach(identity, key[0], f"workspace {name}")
        pinned = sorted(task for tasks in self.pins(key).values() for task in tasks)
        if pinned:
            raise Conflict(
                f"unfinished tasks run on workspace {name}: {format_list(pinned)}; stop them first",
                reason="PINNED",
            )
        await self.registry.delete(key)

    async def collect(self, workspace: OpenWorkspace, *, full: bool = False) -> None:
        """Delete unused contents and old revisions. Delete all old revisions if the storage is `full`."""
        retention_seconds, min_revisions = (
            (0.0, 1) if full else (self._limits.retention_seconds, _MIN_REVISIONS)
        )
        pins = self.pins(workspace.key)
        async with workspace.change_lock:
            collected = await self.registry.run(
                workspace.files.path,
                garbage.collect,
                workspace.files,
                pinned=frozenset(pins),
                running=frozenset(task for tasks in pins.values() for task in tasks),
                before=self.clock.now() - retention_seconds,
                min_revisions=min_revisions,
                thin_before=self.clock.now() - _THIN_AFTER_SECONDS,
            )
        workspace.stored_bytes = None
        if collected.revisions:
            summary = f"deleted revisions={collected.revisions} contents={collected.contents}"
            row = AuditRow(
                self.clock.now(),
                SYSTEM,
                Action.COLLECT_REVISIONS,
                "/".join(workspace.key),
                summary,
                "OK",
            )
            await store_row(self._add_audit_rows, row)

    def collect_periodically(self, key: Key) -> None:
        """Schedule a collection after a change, at most once an hour."""
        if self.clock.now() - self._collected_at.get(key, 0.0) > _COLLECT_SECONDS:
            self.schedule_collection(key)

    def schedule_collection(self, key: Key) -> None:
        """Schedule a collection in the background, after a running one."""
        self._collected_at[key] = self.clock.now()
        previous = self._collections.get(key)
        run = asyncio.ensure_future(self._collect(key, previous))
        self._collections[key] = run
        run.add_done_callback(lambda done: self._drop_finished(key, done))

    async def _collect(self, key: Key, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        try:
            async with self.registry.open(key) as workspace:
                await self.collect(workspace)
        except HaiError as error:
            log.warning(
                "the collection of a workspace failed", workspace="/".join(key), why=str(error)
            )

    def _drop_finished(self, key: Key, done: asyncio.Task[None]) -> None:
        if self._collections.get(key) is done:
            del self._collections[key]

    async def collect_forever(self) -> None:
        """Collect the remains of interrupted pushes forever, also in workspaces without new pushes."""
        while True:
            before = self.clock.now() - garbage.INCOMING_RETENTION_SECONDS
            try:
                for key in await self.registry.list_with_old_incoming(before):
                    self.schedule_collection(key)
            except HaiError as error:
                log.warning("the collection of workspaces failed", why=str(error))
            await asyncio.sleep(_COLLECT_SECONDS)

    async def wait_collected(self) -> None:
        """Wait until no collection is running."""
        await asyncio.gather(*self._collections.values(), return_exceptions=True)

    async def close(self) -> None:
        """Close all workspaces."""
        for run in list(self._collections.values()):
            run.cancel()
        await self.wait_collected()
        await self.registry.close()


def pin_of(task: Task) -> tuple[Key, int] | None:
    """Return the workspace and revision that a task runs on, or None if it uses no workspace."""
    reference = parse_reference(task.spec.spec.workspace)
    return None if reference is None else ((task.user, reference.name), reference.revision)

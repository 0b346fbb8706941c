"""The list of environments: read from their files, and from records where the files cannot be read.

The records are updated with every query. An environment whose files were deleted stays on the list as broken, until its
owner removes it.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from hai.client.taskfile.validation.violations import suggestion_text
from hai_backend.api.protocols import TaskManager
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState, can_see
from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.task import Task
from hai_backend.environments import read
from hai_backend.environments.activation import find_python_problem
from hai_backend.environments.read import OwnerCheck, ReadResult
from hai_backend.store.base import Store

EnvironmentsByName = Mapping[EnvironmentName, Environment]


_UNFINISHED = (EnvironmentState.BUILDING, EnvironmentState.FAILED)
_FILES_MISSING = "its files were deleted; `haienv remove` removes it from the list"


class Environments:
    """The environments below `root`. `run_here` says that tasks run on this machine, so it must have their Pythons."""

    def __init__(
        self,
        root: Path,
        store: Store,
        directory: Directory,
        task_manager: TaskManager,
        clock: Clock,
        *,
        run_here: bool = False,
    ) -> None:
        self.root = root
        self._run_here = run_here
        self._store = store
        self._directory = directory
        self._task_manager = task_manager
        self._clock = clock
        self._scan_lock = asyncio.Lock()
        self._interrupted: list[Environment] = []  # builds of the previous server
        self.pinned: dict[int, tuple[int, str]] = {}  # by task: the run, and the layer of its ranks

    async def load(self) -> None:
        """Load interrupted builds. It must be called before the first build."""
        records = await self._store.records(Environment)
        self._interrupted = [r for r in records if r.state is EnvironmentState.BUILDING]

    async def begin(self) -> None:
        """Mark interrupted builds as failed and update the list, after a start. May be called twice."""
        failure = "the server was restarted while it was built; build it again"
        for record in self._interrupted:
            failed = replace(record, state=EnvironmentState.FAILED, message=failure)
            await self._store.save_record(failed)
        await self.list_all()

    async def list_all(self) -> EnvironmentsByName:
        """Return all environments by owner and name."""
        async with self._scan_lock:
            records = {r.full_name: r for r in await self._store.records(Environment)}
            results = await asyncio.to_thread(self._read_all, records)
            found = {name: merge(records.get(name), result) for name, result in results.items()}
            current = {name: each for name, each in sorted(found.items()) if each is not None}
            await asyncio.gather(*map(self._store.save_record, _changed_records(records, current)))
        return current

    async def get(self, full_name: EnvironmentName) -> Environment | None:
        """Return the current state of one environment."""
        result = await self._read(full_name)
        if isinstance(result, Environment):
            return result  # read from its files
        return merge(await self._record(full_name), result)

    async def _record(self, full_name: EnvironmentName) -> Environment | None:
        found = await self._store.records(Environment, owner=full_name.owner, name=full_name.name)
        return found[0] if found else None

    async def visible(self, identity: Identity) -> list[Environment]:
        """Return the environments that a caller may see, by owner and name."""
        return [e for e in (await self.list_all()).values() if may_see(identity, e)]

    async def find(self, identity: Identity, full_name: EnvironmentName) -> Environment:
        """Return an environment that a caller may see. Raises NotFound."""
        found = await self.get(full_name) if full_name.sound else None
        if found is None or not may_see(identity, found):
            names = [str(e.full_name) for e in await self.visible(identity)]
            raise NotFound(
                f"environment {full_name} not found{suggestion_text(str(full_name), names)}; "
                "`haienv list --remote` shows them",
                reason="NO_SUCH_ENVIRONMENT",
            )
        return found

    async def register(self, reported: Environment) -> Environment:
        """Record an environment from its files, or from its owner's report if they are unreadable. Raises NotFound."""
        result = await self._read(reported.full_name)
        if result is None:
            path = self.root / reported.owner / reported.name
            raise NotFound(f"there is no environment at {path}", reason="NO_SUCH_ENVIRONMENT")
        found = result if isinstance(result, Environment) else await self._accept_report(reported)
        await self._store.save_record(found)
        return found

    async def _accept_report(self, reported: Environment) -> Environment:
        previous = await self._record(reported.full_name)
        return replace(reported, created_at=previous.created_at) if previous else reported

    async def require_removable(self, environment: Environment, identity: Identity) -> None:
        """Raise Conflict if tasks use the environment, or others extend it."""
        if tasks := self.used_by(environment.full_name):
            named = ", ".join(map(str, tasks[:10])) + (" …" if len(tasks) > 10 else "")
            raise Conflict(
                f"environment {environment.full_name} is used by task {named}; "
                "stop them first, or wait for their end",
                reason="ENVIRONMENT_IN_USE",
            )
        if children := await self._children(environment.full_name, identity):
            raise Conflict(
                f"environment {environment.full_name} is extended by {children}; remove them first",
                reason="ENVIRONMENT_EXTENDED",
            )

    async def _children(self, full_name: EnvironmentName, identity: Identity) -> str:
        environments = (await self.list_all()).values()
        children = [
            e for e in environments if e.parent == str(full_name) and e.full_name != full_name
        ]
        names = [str(e.full_name) for e in children if may_see(identity, e)]
        if hidden := len(children) - len(names):
            names.append(f"{hidden} of others")
        return ", ".join(names)

    async def has_files(self, full_name: EnvironmentName) -> bool:
        """Say whether the environment has files."""
        return await self._read(full_name) is not None

    async def remove_record(self, environment: Environment) -> None:
        """Remove an environment from the list."""
        await self._store.delete_record(environment)

    async def save(self, environment: Environment) -> None:
        """Save the state of a build."""
        await self._store.save_record(environment)

    def used_by(self, full_name: EnvironmentName) -> list[int]:
        """Return the ids of unfinished tasks that use an environment."""
        return sorted(t.id for t in self.tasks() if t.spec.options.py_venv == str(full_name))

    def tasks(self) -> Iterable[Task]:
        """Return the unfinished tasks."""
        return self._task_manager.unfinished().values()

    def _read_all(self, records: EnvironmentsByName) -> dict[EnvironmentName, ReadResult]:
        owner_check = self._owner_check()
        scanned = read.scan_environments(self.root, owner_check)
        found: dict[EnvironmentName, ReadResult] = {
            e.full_name: self._check_python(e) for e in scanned
        }
        for full_name in records:
            if full_name not in found:
                found[full_name] = self._check_python(
                    read.read_environment(self.root, full_name, owner_check)
                )
        return found

    async def _read(self, full_name: EnvironmentName) -> ReadResult:
        return await asyncio.to_thread(self._read_blocking, full_name)

    def _read_blocking(self, full_name: EnvironmentName) -> ReadResult:
        return self._check_python(read.read_environment(self.root, full_name, self._owner_check()))

    def _check_python(self, result: ReadResult) -> ReadResult:
        """Mark an environment as broken if its Python is missing. Checked only where tasks run on this machine."""
        if not self._run_here or not isinstance(result, Environment):
            return result
        if result.state is not EnvironmentState.READY:
            return result
        path = self.root / result.owner / read.LAYERS / result.layer
        problem = find_python_problem(path, result.python_version)
        return (
            replace(result, state=EnvironmentState.BROKEN, message=problem) if problem else result
        )

    def _owner_check(self) -> OwnerCheck:
        """Return a function that checks the owner of a directory. Directories of other users are not trusted."""
        uids = {user.name: user.uid for user in self._directory.users()}
        ours = (0, os.getuid())
        return lambda owner, uid: uid in ours or uids.get(owner, 0) in (0, uid)


def merge(record: Environment | None, result: ReadResult) -> Environment | None:
    """Return the environment in the files, or else in the record. Return None if it does not exist."""
    if isinstance(result, Environment):
        return result
    if result is not None or record is None or record.state in _UNFINISHED:
        return record
    return replace(record, state=EnvironmentState.BROKEN, message=_FILES_MISSING)


def _changed_records(records: EnvironmentsByName, current: EnvironmentsByName) -> list[Environment]:
    """Return the records to save. New ones are saved only up to the number of environments that a user may have."""
    counts = Counter(full_name.owner for full_name in records)
    changed = []
    for full_name, environment in current.items():
        record = records.get(full_name)
        counts[full_name.owner] += record is None
        if environment != record and (record or counts[full_name.owner] <= read.MAX_PER_USER):
            changed.append(environment)
    return changed


def may_see(identity: Identity, environment: Environment) -> bool:
    """Say whether a caller may see an environment."""
    if identity.has_right(Right.MANAGE_STORAGE):
        return True
    return can_see(environment, identity.name, identity.user.groups)

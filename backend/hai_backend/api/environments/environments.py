"""The environments that there are: the files as they are now, and what was last known of those that cannot be read.

The list that is kept is corrected whenever somebody asks. What is gone stays on it, as broken, until its owner takes it
off.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from hai.client.taskfile.validation.violations import nearest
from hai_backend.api.protocols import TaskManager
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState, sees
from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.task import Task
from hai_backend.environments import read
from hai_backend.environments.activation import python_fault
from hai_backend.environments.read import Seen, Trusted
from hai_backend.store.base import Store

Known = Mapping[EnvironmentName, Environment]


_UNFINISHED = (EnvironmentState.BUILDING, EnvironmentState.FAILED)
_GONE = "its files are gone; `haienv remove` takes it off the list"


class Environments:
    """`root`: what haienv writes. `run_here`: tasks run on this machine, so their Pythons must be here."""

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
        self._looking = asyncio.Lock()
        self._lost: list[Environment] = []  # the server before this one was building them
        self.pinned: dict[int, tuple[int, str]] = {}  # what ranks were told: task -> run and layer

    async def load(self) -> None:
        """Before anything is built."""
        records = await self._store.records(Environment)
        self._lost = [record for record in records if record.state is EnvironmentState.BUILDING]

    async def begin(self) -> None:
        """The server has started: what it was building is lost; the list is corrected. Twice is not an error."""
        why = "the server was started again while it was built; build it again"
        for record in self._lost:
            failed = replace(record, state=EnvironmentState.FAILED, message=why)
            await self._store.save_record(failed)
        await self.known()

    async def known(self) -> Known:
        """All that there are, by owner and name."""
        async with self._looking:
            records = {r.called: r for r in await self._store.records(Environment)}
            seen = await asyncio.to_thread(self._seen, records)
            found = {name: merged(records.get(name), each) for name, each in seen.items()}
            kept = {name: found_ for name, found_ in sorted(found.items()) if found_ is not None}
            await asyncio.gather(*map(self._store.save_record, _news(records, kept)))
        return kept

    async def one(self, called: EnvironmentName) -> Environment | None:
        """One, as it is now."""
        seen = await self._look(called)
        if isinstance(seen, Environment):
            return seen  # its files have told
        return merged(await self._record(called), seen)

    async def _record(self, called: EnvironmentName) -> Environment | None:
        found = await self._store.records(Environment, owner=called.owner, name=called.name)
        return found[0] if found else None

    async def visible(self, identity: Identity) -> list[Environment]:
        """Those that a caller may know of, by owner and name."""
        return [e for e in (await self.known()).values() if may_see(identity, e)]

    async def find(self, identity: Identity, called: EnvironmentName) -> Environment:
        """One that a caller may know of. Raises NotFound."""
        found = await self.one(called) if called.sound else None
        if found is None or not may_see(identity, found):
            names = [str(e.called) for e in await self.visible(identity)]
            raise NotFound(
                f"there is no environment {called}{nearest(str(called), names)}; "
                "`haienv list --remote` shows them",
                reason="NO_SUCH_ENVIRONMENT",
            )
        return found

    async def register(self, said: Environment) -> Environment:
        """Its files, or what its owner says where they cannot be read. Raises NotFound when there are none."""
        seen = await self._look(said.called)
        if seen is None:
            place = self.root / said.owner / said.name
            raise NotFound(f"there is no environment at {place}", reason="NO_SUCH_ENVIRONMENT")
        found = seen if isinstance(seen, Environment) else await self._believed(said)
        await self._store.save_record(found)
        return found

    async def _believed(self, said: Environment) -> Environment:
        before = await self._record(said.called)
        return replace(said, created_at=before.created_at) if before else said

    async def require_removable(self, environment: Environment, identity: Identity) -> None:
        """Raises Conflict naming the tasks that use it, and the environments that extend it."""
        if tasks := self.used_by(environment.called):
            named = ", ".join(map(str, tasks[:10])) + (" …" if len(tasks) > 10 else "")
            raise Conflict(
                f"environment {environment.called} is used by task {named}; "
                "stop them first, or wait for their end",
                reason="ENVIRONMENT_IN_USE",
            )
        if children := await self._children(environment.called, identity):
            raise Conflict(
                f"environment {environment.called} is extended by {children}; remove them first",
                reason="ENVIRONMENT_EXTENDED",
            )

    async def _children(self, called: EnvironmentName, identity: Identity) -> str:
        known = (await self.known()).values()
        children = [e for e in known if e.parent == str(called) and e.called != called]
        named = [str(e.called) for e in children if may_see(identity, e)]
        if hidden := len(children) - len(named):
            named.append(f"{hidden} of others")
        return ", ".join(named)

    async def has_files(self, called: EnvironmentName) -> bool:
        """Whether there is anything of it on the storage."""
        return await self._look(called) is not None

    async def forget(self, environment: Environment) -> None:
        """Take it off the list."""
        await self._store.delete_record(environment)

    async def note(self, environment: Environment) -> None:
        """What becomes of a build."""
        await self._store.save_record(environment)

    def used_by(self, called: EnvironmentName) -> list[int]:
        """Unfinished tasks, by id; they name their environments with the owner."""
        return sorted(t.id for t in self.tasks() if t.spec.options.py_venv == str(called))

    def tasks(self) -> Iterable[Task]:
        """Those that have not finished."""
        return self._task_manager.unfinished().values()

    def _seen(self, records: Known) -> dict[EnvironmentName, Seen]:
        trusted = self._trust()
        scanned = read.scan(self.root, trusted)
        found: dict[EnvironmentName, Seen] = {e.called: self._judged(e) for e in scanned}
        for called in records:
            if called not in found:
                found[called] = self._judged(read.look(self.root, called, trusted))
        return found

    async def _look(self, called: EnvironmentName) -> Seen:
        return await asyncio.to_thread(self._look_now, called)

    def _look_now(self, called: EnvironmentName) -> Seen:
        return self._judged(read.look(self.root, called, self._trust()))

    def _judged(self, seen: Seen) -> Seen:
        """Broken, too, without the Python that it was made for. Where tasks run elsewhere only their nodes know."""
        if not self._run_here or not isinstance(seen, Environment):
            return seen
        if seen.state is not EnvironmentState.READY:
            return seen
        place = self.root / seen.owner / read.LAYERS / seen.layer
        fault = python_fault(place, seen.python_version)
        return replace(seen, state=EnvironmentState.BROKEN, message=fault) if fault else seen

    def _trust(self) -> Trusted:
        """A directory that somebody else made under a user's name is not that user's."""
        uids = {user.name: user.uid for user in self._directory.users()}
        ours = (0, os.getuid())
        return lambda owner, uid: uid in ours or uids.get(owner, 0) in (0, uid)


def merged(record: Environment | None, seen: Seen) -> Environment | None:
    """What there is; None: nothing."""
    if isinstance(seen, Environment):
        return seen
    if seen is not None or record is None or record.state in _UNFINISHED:
        return record
    return replace(record, state=EnvironmentState.BROKEN, message=_GONE)


def _news(records: Known, kept: Known) -> list[Environment]:
    """What is to be written: of nobody more than are listed, however often they change their names."""
    written = Counter(called.owner for called in records)
    news = []
    for called, environment in kept.items():
        known = records.get(called)
        written[called.owner] += known is None
        if environment != known and (known or written[called.owner] <= read.MOST_OF_ONE):
            news.append(environment)
    return news


def may_see(identity: Identity, environment: Environment) -> bool:
    """Whether a caller may know of an environment."""
    if identity.has_right(Right.MANAGE_STORAGE):
        return True
    return sees(environment, identity.name, identity.user.groups)

"""Protocols of the parts that many services need. The classes in `controllers` and `logs` implement them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from hai_backend.domain.node import Group, Labels, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.domain.spec import TaskSpec
from hai_backend.domain.task import Outcome, Task
from hai_backend.lifecycle.events import Event
from hai_backend.logs.dropped import Dropped
from hai_backend.logs.lines import LogLine


class Feed(Protocol):
    """Wakes coroutines that follow changes."""

    @property
    def version(self) -> int: ...
    async def beyond(self, version: int) -> int:
        """Wait until a larger version is published, and return the published version."""
        ...


class TaskManager(Protocol):
    """All unfinished tasks. All changes of tasks go through it."""

    @property
    def feed(self) -> Feed: ...
    def unfinished(self) -> Mapping[int, Task]: ...
    def unfinished_of(self, user: str) -> int: ...
    def spec_length_of(self, user: str) -> int: ...
    async def get(self, task_id: int) -> Task: ...
    async def apply(self, task_id: int, event: Event) -> Task: ...
    async def submit(self, user: str, spec: TaskSpec, request_id: str, note: str = "") -> Task: ...
    async def submitted(self, user: str, request_id: str) -> Task | None: ...
    async def stop(self, task_id: int, by: str, outcome: Outcome | None) -> Task: ...
    async def suspend(self, task_id: int, by: str, *, hold: bool, delay: float) -> Task: ...
    async def resume(self, task_id: int, by: str) -> Task: ...
    async def set_priority(self, task_id: int, by: str, priority: Priority) -> Task: ...
    async def set_rank(self, task_id: int, by: str, custom_rank: float) -> Task: ...
    async def set_labels(
        self,
        task_id: int,
        by: str,
        *,
        tags: tuple[str, ...] | None = None,
        starred: bool | None = None,
    ) -> Task: ...


class Scheduling(Protocol):
    """The results of the last scheduling pass."""

    def wait(self, task_id: int) -> Wait | None: ...
    async def waits(self, group: str = "") -> Mapping[int, Wait]: ...
    async def snapshot(self) -> Snapshot:
        """Return the cluster as a scheduling pass would see it now."""
        ...


class Cluster(Protocol):
    """The current nodes and groups."""

    @property
    def feed(self) -> Feed: ...
    @property
    def placement_lock(self) -> asyncio.Lock:
        """The lock that is held while runs are placed, and while the settings of a group change."""
        ...

    def nodes(self) -> Mapping[str, Node]: ...
    def groups(self) -> Mapping[str, Group]: ...
    async def set_cordoned(self, name: str, cordoned: bool, reason: str, by: str) -> Node: ...
    async def drain(self, name: str, reason: str, by: str) -> Node: ...
    async def set_labels(self, name: str, change: Callable[[Labels], Labels]) -> Node: ...
    async def save_group(self, group: Group) -> None: ...


class Logs(Protocol):
    """The output of programs."""

    def read(
        self,
        task_id: int,
        *,
        ranks: tuple[int, ...] = (),
        run: int = 0,
        tail_lines: int = 0,
        since: float | None = None,
        cursor: str = "",
        max_bytes: int = 1024 * 1024,
    ) -> tuple[list[LogLine], str]: ...
    def read_back(
        self,
        task_id: int,
        *,
        ranks: tuple[int, ...] = (),
        run: int = 0,
        cursor: str = "",
        max_bytes: int = 256 * 1024,
    ) -> tuple[list[LogLine], str, str]: ...
    def bars(
        self, task_id: int, *, ranks: tuple[int, ...] = (), run: int = 0, after: int = 0
    ) -> tuple[list[LogLine], int]: ...
    def dropped(self, task_id: int, run: int) -> Mapping[int, Dropped]: ...
    def appends(self, task_id: int) -> AbstractContextManager[asyncio.Event]: ...
    def is_followed(self, task_id: int) -> bool: ...

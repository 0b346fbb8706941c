"""WatchTasks: what changed after a version, without loss, without repeats, at the reader's own pace.

The stream holds no queue: each time its reader has taken a bundle it asks the store what changed since, so a slow
reader gets the last state of a task that changed ten times, and memory stays bounded. The first bundles of a fresh
stream are pages; tasks that change meanwhile have a larger version and come with the changes.

A filter may look at what changes (state, tags, priority). A task that was sent and no longer matches is sent once more,
so that the reader sees it leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from hai_backend.api.protocols import Feed
from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import Store, TaskFilter, TaskQuery
from hai_backend.store.matching import matches

BUNDLE_SECONDS = 0.05  # a busy cluster changes a thousand times a second; readers need not
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Bundle:
    """Tasks to send. A new stream may go on from `version`; if `ordered`, from any task's version once it is sent."""

    tasks: list[Task]
    version: int
    ordered: bool


class TaskWatch:
    """One stream. `groups_of` answers with the user groups of a task's owner."""

    def __init__(
        self,
        store: Store,
        feed: Feed,
        wanted: TaskFilter,
        groups_of: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._store = store
        self._feed = feed
        self._wanted = wanted
        self._lasting = _lasting(wanted)
        self._groups_of = groups_of
        self._told_in: set[int] = set()  # ids that the reader holds as matching
        self._told_out: set[int] = set()  # after a resume: ids that it was told not to

    async def bundles(self, after: int) -> AsyncIterator[Bundle]:
        """For ever. Each bundle says from where a new stream may go on."""
        if after > await self._store.version():
            after = 0  # a version of another store: begin anew
        version = after
        if after == 0:
            async for bundle in self._now():
                yield bundle
                version = bundle.version
        first = after > 0
        while True:
            tasks, version, more = await self._changes(version, resumed=after > 0)
            if tasks or first:
                yield Bundle(tasks, version, ordered=True)
            first = False
            if not more:
                await self._feed.beyond(version)
                await asyncio.sleep(BUNDLE_SECONDS)

    async def _now(self) -> AsyncIterator[Bundle]:
        """All unfinished tasks that match. Only after the last page may a reader resume from here."""
        upto, token = await self._store.version(), ""
        wanted = replace(self._wanted, not_states=self._wanted.not_states | {TaskState.FINISHED})
        while True:
            query = TaskQuery(wanted, "id", descending=False, page_size=_PAGE, page_token=token)
            page = await self._store.find_tasks(query)
            tasks = [task for task in page.tasks if task.version <= upto]
            self._told_in.update(task.id for task in tasks)
            token = page.next_page_token
            yield Bundle(tasks, 0 if token else upto, ordered=False)
            if not token:
                return

    async def _changes(self, after: int, *, resumed: bool) -> tuple[list[Task], int, bool]:
        """What to send, up to which version, and whether there is more now."""
        published = self._feed.version  # before reading: everything up to here can be read
        changed = await self._store.changed_tasks(after, _PAGE)
        sent = [task for task in changed if self._concerns(task, resumed)]
        if len(changed) == _PAGE:
            return sent, changed[-1].version, True
        return sent, max(after, published, changed[-1].version if changed else 0), False

    def _concerns(self, task: Task, resumed: bool) -> bool:
        groups = {task.user: self._groups_of(task.user)}
        if not matches(task, self._lasting, groups):
            return False
        if self._lasting is self._wanted:
            return True
        if matches(task, self._wanted, groups):
            self._told_in.add(task.id)
            self._told_out.discard(task.id)
            return True
        return self._leaves(task, resumed)

    def _leaves(self, task: Task, resumed: bool) -> bool:
        """Whether the reader may still hold a task that does not match."""
        held = task.id in self._told_in or (resumed and task.id not in self._told_out)
        self._told_in.discard(task.id)
        if resumed and task.state is not TaskState.FINISHED:
            self._told_out.add(task.id)
        return held


def _lasting(wanted: TaskFilter) -> TaskFilter:
    """The terms that a task passes for ever or never; `wanted` itself when there are no others."""
    lasting = replace(
        wanted,
        states=frozenset(),
        outcomes=frozenset(),
        tags=frozenset(),
        not_states=frozenset(),
        not_tags=frozenset(),
        starred=None,
        priority_min=None,
        priority_max=None,
    )
    return wanted if lasting == wanted else lasting

"""Streams the changes of tasks after a version for WatchTasks, without losses and repetitions.

A stream has no queue. When its reader has taken a bundle, the stream reads from the store what has changed since. A
slow reader gets only the last state of a task that changed ten times, so memory stays bounded. A new stream begins with
pages of all matching tasks. A task that changes in the meantime has a larger version and follows with the changes.

A filter may test fields that change (state, tags, priority). A task that was sent and no longer matches is sent once
more, so that the reader sees that it no longer matches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from hai_backend.api.protocols import Feed
from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import Store, TaskFilter, TaskQuery
from hai_backend.store.matching import matches

BUNDLE_SECONDS = 0.05  # between bundles; a busy cluster has a thousand changes a second
_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Bundle:
    """Tasks to send. A new stream can resume from `version`.

    If the bundle is ordered, a stream can also resume from the version of the last task that it got.
    """

    tasks: list[Task]
    version: int
    is_ordered: bool


class TaskWatch:
    """One stream. `groups_of` returns the user groups of a user."""

    def __init__(
        self,
        store: Store,
        feed: Feed,
        task_filter: TaskFilter,
        groups_of: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._store = store
        self._feed = feed
        self._filter = task_filter
        self._constant_filter = _constant_terms(task_filter)
        self._groups_of = groups_of
        self._sent_matching: set[int] = set()  # ids of tasks that matched when they were last sent
        self._sent_not_matching: set[int] = set()  # after a resume: ids of tasks that did not match

    async def bundles(self, after_version: int) -> AsyncIterator[Bundle]:
        """Yield bundles forever."""
        if after_version > await self._store.version():
            after_version = 0  # a version of another store: send everything
        version, is_resumed = after_version, after_version > 0
        if not is_resumed:
            async for bundle in self._current_tasks():
                yield bundle
                version = bundle.version
        confirm_resume = is_resumed
        while True:
            tasks, version, has_more = await self._changes(version, is_resumed=is_resumed)
            if tasks or confirm_resume:
                yield Bundle(tasks, version, is_ordered=True)
            confirm_resume = False
            if not has_more:
                await self._feed.beyond(version)
                await asyncio.sleep(BUNDLE_SECONDS)

    async def _current_tasks(self) -> AsyncIterator[Bundle]:
        """Yield all unfinished tasks that match. A reader can resume only from the last page."""
        version, token = await self._store.version(), ""
        unfinished = replace(
            self._filter, not_states=self._filter.not_states | {TaskState.FINISHED}
        )
        while True:
            query = TaskQuery(
                unfinished, "id", descending=False, page_size=_PAGE_SIZE, page_token=token
            )
            page = await self._store.find_tasks(query)
            tasks = [task for task in page.tasks if task.version <= version]
            self._sent_matching.update(task.id for task in tasks)
            token = page.next_page_token
            yield Bundle(tasks, 0 if token else version, is_ordered=False)
            if not token:
                return

    async def _changes(
        self, after_version: int, *, is_resumed: bool
    ) -> tuple[list[Task], int, bool]:
        """Return the tasks to send, the version that they reach, and whether there are more now."""
        published = self._feed.version  # read first: the store has everything up to this version
        changed = await self._store.changed_tasks(after_version, _PAGE_SIZE)
        to_send = [task for task in changed if self._must_send(task, is_resumed)]
        if len(changed) == _PAGE_SIZE:
            return to_send, changed[-1].version, True
        version = max(after_version, published, changed[-1].version if changed else 0)
        return to_send, version, False

    def _must_send(self, task: Task, is_resumed: bool) -> bool:
        groups = {task.user: self._groups_of(task.user)}
        if not matches(task, self._constant_filter, groups):
            return False
        if self._constant_filter is self._filter:
            return True
        if matches(task, self._filter, groups):
            self._sent_matching.add(task.id)
            self._sent_not_matching.discard(task.id)
            return True
        return self._must_send_not_matching(task, is_resumed)

    def _must_send_not_matching(self, task: Task, is_resumed: bool) -> bool:
        """Say whether the reader may have a task that no longer matches."""
        may_be_known = task.id in self._sent_matching or (
            is_resumed and task.id not in self._sent_not_matching
        )
        self._sent_matching.discard(task.id)
        if is_resumed and task.state is not TaskState.FINISHED:
            self._sent_not_matching.add(task.id)
        return may_be_known


def _constant_terms(task_filter: TaskFilter) -> TaskFilter:
    """Return the terms whose result never changes for a task. Return the same filter if it has no other terms."""
    constant = replace(
        task_filter,
        states=frozenset(),
        outcomes=frozenset(),
        tags=frozenset(),
        not_states=frozenset(),
        not_tags=frozenset(),
        starred=None,
        priority_min=None,
        priority_max=None,
    )
    return task_filter if constant == task_filter else constant

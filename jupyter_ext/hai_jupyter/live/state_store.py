"""Holds tasks and nodes as JSON texts, and sends changes to all open pages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hai.v1.node_pb2 import Node
from hai.v1.task_pb2 import TASK_STATE_FINISHED, Task
from hai_jupyter.live.rows import node_text, task_text
from hai_jupyter.live.subscriber import Subscriber


class StateStore:
    """Sends each page the changes since its version; `id` tells stores of different server processes apart."""

    def __init__(self, max_finished: int) -> None:
        self._max_finished = max_finished
        self._tasks: dict[int, str] = {}
        self._versions: dict[int, int] = {}
        self._finished: dict[int, None] = {}
        self._nodes: dict[str, str] = {}
        self._pages: set[Subscriber] = set()
        self._facts: dict[str, Any] = {}
        self.id = uuid.uuid4().hex
        self.version = 0

    @property
    def page_count(self) -> int:
        """Return the number of open pages."""
        return len(self._pages)

    @property
    def task_count(self) -> int:
        """Return the number of tasks."""
        return len(self._tasks)

    @contextmanager
    def page(self, store_id: str = "", after: int = 0) -> Iterator[Subscriber]:
        """Subscribe a page to the changes since a version of a store."""
        page = Subscriber(self._tasks, self._nodes)
        self._catch_up(page, store_id, after)
        self._pages.add(page)
        try:
            yield page
        finally:
            self._pages.discard(page)

    def put_tasks(self, tasks: Sequence[Task], version: int = 0) -> None:
        """Store changed tasks; afterwards the store is complete up to the version."""
        changed = [task for task in tasks if task.version > self._versions.get(task.id, -1)]
        for task in changed:
            self._put(task)
        self.version = max(self.version, version)
        for page in self._pages:
            page.add_tasks((task.id for task in changed), self.version)

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        """Store changed nodes."""
        texts = {node.name: node_text(node) for node in nodes}
        self._nodes |= texts
        for page in self._pages:
            page.add_nodes(texts)

    def set_facts(self, **facts: Any) -> None:
        """Send new values to every page."""
        self._facts |= facts
        for page in self._pages:
            page.set_facts(**facts)

    def reset(self) -> None:
        """Drop everything, because the server has another cluster."""
        self.id, self.version = uuid.uuid4().hex, 0
        for table in (self._tasks, self._versions, self._finished, self._nodes):
            table.clear()
        for page in self._pages:
            page.reset(self.id)

    def _put(self, task: Task) -> None:
        self._tasks[task.id] = task_text(task)
        self._versions[task.id] = task.version
        if task.state != TASK_STATE_FINISHED:
            self._finished.pop(task.id, None)
            return
        self._finished[task.id] = None
        # A server may run for months, so it forgets the oldest finished tasks.
        if len(self._finished) > self._max_finished:
            oldest = min(self._finished)
            for table in (self._tasks, self._versions, self._finished):
                del table[oldest]

    def _catch_up(self, page: Subscriber, store_id: str, after: int) -> None:
        can_resume = store_id == self.id and 0 < after <= self.version
        if not can_resume:
            page.reset(self.id)
        page.set_facts(**self._facts)
        newest_first = sorted(self._tasks, reverse=True)
        missing = (i for i in newest_first if not can_resume or self._versions[i] > after)
        page.add_tasks(missing, self.version)
        page.add_nodes(self._nodes)

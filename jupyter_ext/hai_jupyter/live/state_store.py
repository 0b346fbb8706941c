"""What every page shows: tasks and nodes as JSON texts made once, and the pages that are told what changes."""

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
    """Tells each page what it does not know: a page says which version of which board it has seen."""

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
    def pages(self) -> int:
        """Pages that listen."""
        return len(self._pages)

    @property
    def tasks(self) -> int:
        """Tasks that are known."""
        return len(self._tasks)

    @contextmanager
    def page(self, board: str = "", after: int = 0) -> Iterator[Subscriber]:
        """A page that is told what has changed since a version of a board, then what changes."""
        page = Subscriber(self._tasks, self._nodes)
        self._catch_up(page, board, after)
        self._pages.add(page)
        try:
            yield page
        finally:
            self._pages.discard(page)

    def put_tasks(self, tasks: Sequence[Task], version: int = 0) -> None:
        """These have changed; with them everything up to the version is known."""
        fresh = [task for task in tasks if task.version > self._versions.get(task.id, -1)]
        for task in fresh:
            self._put(task)
        self.version = max(self.version, version)
        for page in self._pages:
            page.tasks((task.id for task in fresh), self.version)

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        """These have changed."""
        texts = {node.name: node_text(node) for node in nodes}
        self._nodes |= texts
        for page in self._pages:
            page.nodes(texts)

    def say(self, **facts: Any) -> None:
        """Something else that every page shows."""
        self._facts |= facts
        for page in self._pages:
            page.say(**facts)

    def reset(self) -> None:
        """Begin anew with another cluster."""
        self.id, self.version = uuid.uuid4().hex, 0
        for known in (self._tasks, self._versions, self._finished, self._nodes):
            known.clear()
        for page in self._pages:
            page.forget(self.id)

    def _put(self, task: Task) -> None:
        self._tasks[task.id] = task_text(task)
        self._versions[task.id] = task.version
        if task.state != TASK_STATE_FINISHED:
            self._finished.pop(task.id, None)
            return
        self._finished[task.id] = None
        # A server that runs for months forgets old ones
        if len(self._finished) > self._max_finished:
            oldest = min(self._finished)
            for known in (self._tasks, self._versions, self._finished):
                del known[oldest]

    def _catch_up(self, page: Subscriber, board: str, after: int) -> None:
        known = board == self.id and 0 < after <= self.version
        if not known:
            page.forget(self.id)
        page.say(**self._facts)
        newest_first = sorted(self._tasks, reverse=True)
        missing = (i for i in newest_first if not known or self._versions[i] > after)
        page.tasks(missing, self.version)
        page.nodes(self._nodes)

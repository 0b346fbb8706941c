"""The task, its runs and its events, loaded together and looked up by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hai.client.tasks.silent_agents import silent_agents_of_run
from hai_tui.formatting.table import printable
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Rank, Run, Task, TaskEvent, Waiting
    from hai.v1.task_service_pb2 import ExplainTaskResponse


@dataclass(slots=True)
class TaskDetail:
    """A task, its runs, its events, and why it waits or is silent."""

    task: Task | None = None
    runs: list[Run] = field(default_factory=list)
    events: list[TaskEvent] = field(default_factory=list)
    why: ExplainTaskResponse | None = None

    async def load(self, client: Client, id: int) -> None:
        """Ask for all of it; of runs and events only for those that are new or may have changed."""
        self.task = await client.tasks.get(id)
        over = self.runs[-1].number - 1 if self.runs else 0
        self.runs = [*self.runs[:-1], *await client.tasks.runs(id, over)]
        after = self.events[-1].sequence if self.events else 0
        self.events += await client.tasks.events(id, after)
        explained = (
            self.task.waiting.reason
            or self.task.suspend_count
            or silent_agents_of_run(self.task.run)
        )
        self.why = await client.tasks.explain(id) if explained else None

    @property
    def waiting(self) -> Waiting:
        """Why it waits, as far as is known."""
        assert self.task is not None
        return self.why.waiting if self.why else self.task.waiting

    @property
    def ranks(self) -> Sequence[Rank]:
        """Those of the latest run."""
        latest = self.runs[-1] if self.runs else self.task.run if self.task else None
        return latest.ranks if latest else ()

    def rank(self, index: int) -> Rank | None:
        """A rank of the latest run."""
        return self.ranks[index] if index < len(self.ranks) else None

    def run(self, number: int) -> Run | None:
        """A run by its number."""
        return next((run for run in self.runs if run.number == number), None)

    def event(self, sequence: int) -> TaskEvent | None:
        """An event by its number."""
        position = sequence - self.events[0].sequence if self.events else -1
        return self.events[position] if 0 <= position < len(self.events) else None

    def event_summary(self, sequence: int) -> str:
        """All of what its row may have no room for."""
        event = self.event(sequence)
        return f"{event.kind}: {printable(event.reason)}" if event and event.reason else ""

    def run_summary(self, number: int) -> str:
        """As above: why it ended."""
        from hai_tui.screens.task.text import run_end  # loads protobuf

        run = self.run(number)
        ended = run_end(run) if run else ""
        return f"{text('task.run', number=number)}: {ended}" if ended else ""

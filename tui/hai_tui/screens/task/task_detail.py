"""The data of the page of a task, loaded together and looked up by row."""

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
    explanation: ExplainTaskResponse | None = None

    async def load(self, client: Client, id: int) -> None:
        """Load the task, its explanation, and those runs and events that are new or may have changed."""
        self.task = await client.tasks.get(id)
        last_ended_run = self.runs[-1].number - 1 if self.runs else 0
        self.runs = [*self.runs[:-1], *await client.tasks.runs(id, last_ended_run)]
        last_event = self.events[-1].sequence if self.events else 0
        self.events += await client.tasks.events(id, last_event)
        task = self.task
        has_explanation = (
            task.waiting.reason or task.suspend_count or silent_agents_of_run(task.run)
        )
        self.explanation = await client.tasks.explain(id) if has_explanation else None

    @property
    def waiting(self) -> Waiting:
        """Return why the task waits, as far as is known."""
        assert self.task is not None
        return self.explanation.waiting if self.explanation else self.task.waiting

    @property
    def ranks(self) -> Sequence[Rank]:
        """Return the ranks of the latest run."""
        latest = self.runs[-1] if self.runs else self.task.run if self.task else None
        return latest.ranks if latest else ()

    def rank(self, index: int) -> Rank | None:
        """Return a rank of the latest run."""
        return self.ranks[index] if index < len(self.ranks) else None

    def run(self, number: int) -> Run | None:
        """Return a run by its number."""
        return next((run for run in self.runs if run.number == number), None)

    def event(self, sequence: int) -> TaskEvent | None:
        """Return an event by its number."""
        position = sequence - self.events[0].sequence if self.events else -1
        return self.events[position] if 0 <= position < len(self.events) else None

    def event_summary(self, sequence: int) -> str:
        """Return the full reason of an event, for which its row may have no room."""
        event = self.event(sequence)
        return f"{event.kind}: {printable(event.reason)}" if event and event.reason else ""

    def run_summary(self, number: int) -> str:
        """Return why a run ended, for which its row may have no room."""
        from hai_tui.screens.task.text import run_end_text  # loads protobuf

        run = self.run(number)
        end = run_end_text(run) if run else ""
        return f"{text('task.run', number=number)}: {end}" if end else ""

"""Runs the demo: submit LOW, let it train, submit HIGH, follow both to their end, compare the results."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hai.v1.task_pb2 import Run, RunState, Task, TaskEvent, TaskState
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_tui.cli.suspend_demo.chart import Bar

if TYPE_CHECKING:
    from hai.client.client import Client

NODES = 2
# The demo's tasks: steps of `low` and of `high`, steps between two lines, duration of a step
STEPS, URGENT_STEPS, PRINT_EVERY, STEP_SECONDS = 160, 40, 10, 0.05
OnEvent = Callable[[float, str, TaskEvent], None]
"""Receives the seconds since the start, the name of the task, and the event."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the demo. Times are in seconds."""

    suspensions: int
    asked_to_yielded_seconds: float
    submitted_to_running_seconds: float
    final_loss: str
    undisturbed_loss: str
    equal: bool
    low_succeeded: bool
    high_succeeded: bool

    @property
    def proven(self) -> bool:
        return self.equal and self.suspensions > 0 and self.low_succeeded and self.high_succeeded

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "proven": self.proven}


def train_program() -> Path:
    """Return the example program, from the installed package or from the checkout."""
    import hai_tui

    package = Path(hai_tui.__file__).parent
    for folder in (package / "examples", package.parent.parent / "examples"):
        if (folder / "train_numpy.py").exists():
            return folder / "train_numpy.py"
    raise FileNotFoundError("examples/train_numpy.py is neither in the package nor beside it")


async def run_demo(client: Client, home: Path, on_event: OnEvent) -> tuple[Results, list[Bar]]:
    """Run the demo. `on_event` receives each event of a task."""
    low = await client.tasks.create(_spec("low", 0, STEPS, home / "low.json"))
    reporter = _EventReporter(client, on_event, low.create_time.ToNanoseconds() / 1e9)
    following = asyncio.ensure_future(reporter.follow(low))
    await _wait_until_trained(client, low.id, 4)
    high = await client.tasks.create(_spec("high", 30, URGENT_STEPS, home / "high.json"))
    await asyncio.gather(following, reporter.follow(high))
    undisturbed = await asyncio.to_thread(run_undisturbed, home / "undisturbed.json")
    low, high = await client.tasks.get(low.id), await client.tasks.get(high.id)
    runs = {t.name: await client.tasks.runs(t.id) for t in (low, high)}
    events = await client.tasks.events(low.id)
    return _results(low, high, runs, events, home, undisturbed), _chart_bars(runs, events)


def _spec(name: str, priority: int, steps: int, out: Path) -> TaskSpec:
    pace = ["--step-seconds", str(STEP_SECONDS), "--checkpoint-every", str(PRINT_EVERY)]
    parameters = ["--steps", str(steps), *pace, "--out", str(out)]
    return TaskSpec(
        version=2,
        name=name,
        priority=priority,
        spec=ProgramSpec(entrypoint=str(train_program()), parameters=parameters),
        resource=ResourceSpec(node_count=NODES),
    )


async def _wait_until_trained(client: Client, task_id: int, lines: int) -> None:
    """Wait until rank 0 has printed that many lines, so that the task has something to lose."""
    line_count = 0
    async for answer in client.logs.tail(task_id, ranks=(0,), follow=True):
        line_count += len(answer.lines)
        if line_count >= lines:
            return


class _EventReporter:
    """Reports the events of several tasks in the order of their time."""

    def __init__(self, client: Client, on_event: OnEvent, start: float) -> None:
        self._client = client
        self._on_event = on_event
        self._start = start
        self._names: dict[int, str] = {}
        self._last_sequence: dict[int, int] = {}
        self._lock = asyncio.Lock()

    async def follow(self, task: Task) -> None:
        """Report events until the task is finished."""
        self._names[task.id] = task.name
        async for change in self._client.tasks.watch(f"id:{task.id}"):
            async with self._lock:
                await self._report_new_events()
            if any(t.state == TaskState.TASK_STATE_FINISHED for t in change.tasks):
                return

    async def _report_new_events(self) -> None:
        """Report the new events of all tasks, sorted by time.

        An event may arrive before an earlier event of another task. So all tasks are asked again until none has new
        events.
        """
        new: list[tuple[float, str, TaskEvent]] = []
        while events_found := [
            each for id in [*self._names] for each in await self._new_events(id)
        ]:
            new += events_found
        for seconds, name, event in sorted(new, key=lambda each: each[0]):
            self._on_event(seconds - self._start, name, event)

    async def _new_events(self, id: int) -> list[tuple[float, str, TaskEvent]]:
        events = await self._client.tasks.events(id, after=self._last_sequence.get(id, 0))
        self._last_sequence.update((id, event.sequence) for event in events)
        return [(_seconds(event), self._names[id], event) for event in events]


def _seconds(event: TaskEvent) -> float:
    return event.time.ToNanoseconds() / 1e9


def run_undisturbed(out: Path) -> str:
    """Run the same training outside the cluster, without pauses. Return its final loss."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("HAI_", "HFAI_", "MARSV2_"))
    }
    checkpoints = {"HAI_CHECKPOINT_DIR": str(out.with_suffix(".checkpoints"))}
    command = [sys.executable, str(train_program()), "--steps", str(STEPS), "--out", str(out)]
    subprocess.run(command, env={**environment, **checkpoints}, check=True, capture_output=True)
    return str(json.loads(out.read_text())["final_loss"])


def _results(
    low: Task,
    high: Task,
    runs: Mapping[str, Sequence[Run]],
    events: Sequence[TaskEvent],
    home: Path,
    undisturbed: str,
) -> Results:
    out = home / "low.json"
    final_loss = str(json.loads(out.read_text())["final_loss"]) if out.exists() else "none"
    requested_at = next((_seconds(e) for e in events if e.kind == "SuspendAsked"), 0.0)
    yielded_at = next((_seconds(e) for e in events if e.kind == "Yielded"), requested_at)
    first = runs["high"][0] if runs["high"] else Run()
    started = first.start_time.ToNanoseconds() / 1e9
    return Results(
        suspensions=low.suspend_count,
        asked_to_yielded_seconds=round(yielded_at - requested_at, 3),
        submitted_to_running_seconds=round(started - high.create_time.ToNanoseconds() / 1e9, 3),
        final_loss=final_loss,
        undisturbed_loss=undisturbed,
        equal=final_loss == undisturbed,
        low_succeeded=low.outcome == 1,
        high_succeeded=high.outcome == 1,
    )


def _chart_bars(runs: Mapping[str, Sequence[Run]], events: Sequence[TaskEvent]) -> list[Bar]:
    requested_at = {e.run: _seconds(e) for e in events if e.kind == "SuspendAsked"}
    return [
        Bar(
            rank.node,
            run.create_time.ToNanoseconds() / 1e9,
            run.end_time.ToNanoseconds() / 1e9,
            name[0],
            requested_at.get(run.number) if name == "low" else None,
        )
        for name, of_task in runs.items()
        for run in of_task
        if run.state == RunState.RUN_STATE_ENDED
        for rank in run.ranks
    ]

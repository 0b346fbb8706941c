"""kill -9 of the server at every write of a scenario: submit, start, suspend, resume, stop, finish.

The client repeats each unanswered call with the same request id. At whatever moment the server is killed: no task is
lost or doubled, no rank runs twice at once, no log line is lost or repeated, programs are not disturbed, and the
scenario ends as it would without the kill.

A scenario takes about sixty writes. Each test kills the server at its OFFSET-th write, and after each restart at the
STRIDE-th write. So all offsets together cover every write, both just before and just after it is durable.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.client.errors import HaiError
from hai.client.profile import Profile
from hai.v1.task_pb2 import Task, TaskOutcome, TaskState
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.support.servers import ServerProcess

PROGRAM = Path(__file__).parent / "counting.py"
STEPS = 30
STRIDE = 7
FAULTY = "tests.support.crashing_server"


def spec(name: str, priority: int, steps: int, witness: Path) -> TaskSpec:
    return TaskSpec(
        version=2,
        name=name,
        priority=priority,
        spec=ProgramSpec(entrypoint=str(PROGRAM), parameters=[str(steps), str(witness)]),
        resource=ResourceSpec(node_count=2),
    )


class Story:
    """Runs the scenario against a server that is killed repeatedly. `kills` counts how often."""

    def __init__(self, server: ServerProcess, witness: Path, when: str) -> None:
        self._server = server
        self._witness = witness
        self._when = when
        self.kills = 0

    def start(self, write: int) -> Profile:
        return self._server.start("--kill-at", f"{write}:{self._when}", module=FAULTY)

    async def tell(self, profile: Profile) -> tuple[Task, Task, Task, list[str]]:
        """Run the scenario. Return its three tasks, and the log of the first one."""
        async with Client(profile) as client:
            low = await self._submit(client, "low", 0, STEPS)
            await self._until(client, low.id, _started)
            high = await self._submit(client, "high", 30, 5)
            await self._until(client, high.id, lambda t: t.state == TaskState.TASK_STATE_FINISHED)
            extra = await self._submit(client, "extra", 5, 10_000)
            await self._until(client, extra.id, lambda t: _started(t) or t.outcome != 0)
            await self._patient(lambda: client.tasks.stop(extra.id))
            for task in (low, extra):
                await self._until(
                    client, task.id, lambda t: t.state == TaskState.TASK_STATE_FINISHED
                )
            tasks = [
                await self._patient(lambda i=t.id: client.tasks.get(i)) for t in (low, high, extra)
            ]
            lines = [
                line.text
                async for answer in client.logs.tail(low.id, ranks=(0,))
                for line in answer.lines
            ]
            return tasks[0], tasks[1], tasks[2], lines

    async def _submit(self, client: Client, name: str, priority: int, steps: int) -> Task:
        wanted = spec(name, priority, steps, self._witness)
        return await self._patient(
            lambda: client.tasks.create(wanted, request_id=f"{name}-request")
        )

    async def _until(self, client: Client, task_id: int, true) -> Task:  # type: ignore[no-untyped-def]
        while True:
            task = await self._patient(lambda: client.tasks.get(task_id))
            if true(task):
                return task
            await asyncio.sleep(0.05)

    async def _patient(self, ask):  # type: ignore[no-untyped-def]
        """Call until the server answers. Start the server again after it was killed."""
        while True:
            try:
                return await ask()
            except HaiError:
                if self._server.running:
                    await asyncio.sleep(0.02)
                else:
                    self.kills += 1
                    await asyncio.to_thread(self.start, STRIDE)


def _started(task: Task) -> bool:
    return (
        task.state == TaskState.TASK_STATE_RUNNING
        and bool(task.run.ranks)
        and all(r.HasField("start_time") for r in task.run.ranks)
    )


def check(low: Task, high: Task, extra: Task, lines: list[str], witness: Path) -> None:
    """Check the outcomes, the log, and that no two programs of a rank ran at the same time."""
    assert low.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED, low
    assert high.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED, high
    assert extra.outcome in (TaskOutcome.TASK_OUTCOME_STOPPED, TaskOutcome.TASK_OUTCOME_CANCELED), (
        extra
    )
    assert len({low.id, high.id, extra.id}) == 3
    assert 2 <= low.run_count <= 3, "it gave way to high, perhaps to extra, and to nobody twice"
    steps = [line for line in lines if line.startswith("step ")]
    # No line is lost or repeated.
    assert steps == [f"step {i}" for i in range(STEPS)]
    spans = [json.loads(line) for line in witness.read_text().splitlines()]
    for rank in (0, 1):
        alive = sorted((s["from"], s["to"]) for s in spans if s["rank"] == rank)
        for (_, end), (begin, _) in itertools.pairwise(alive):
            assert end <= begin, f"two programs at once on node of rank {rank}: {alive}"


@pytest.mark.timeout(600)  # ten starts of a server, which take long on a busy machine
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("offset", range(1, STRIDE + 1))
async def test_kills_at_write_boundaries_change_nothing(
    server: ServerProcess, tmp_path: Path, offset: int, when: str
) -> None:
    witness = tmp_path / "witness"
    story = Story(server, witness, when)
    profile = await asyncio.to_thread(story.start, offset)
    check(*await story.tell(profile), witness)
    assert story.kills >= 4

"""Tasks that wait for other tasks, with real programs, and kill -9 of the server after some writes of tasks.

Each test kills the server at its OFFSET-th write, and after each restart at the STRIDE-th write. With a STRIDE of 3 and
all offsets up to 3, the server is killed after every write, also between the end of a task and the release of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from hai.client.client import Client
from hai.client.errors import TimedOut, Unreachable
from hai.client.profile import Profile
from hai.v1.task_pb2 import Task, TaskOutcome, TaskState
from hai.v1.task_spec_pb2 import AfterSpec, OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from tests.support.servers import ServerProcess

STRIDE = 7  # a start of a server takes two seconds
FAULTY = "tests.support.crashing_server"
# No task ends before all are submitted, because a task that could never start would be refused.
PROGRAM = """
echo "$1 begins" >> "$2"
until [ -e "$2.all" ]; do sleep 0.05; done
sleep 0.2
echo "$1 ends" >> "$2"
"""
Answer = TypeVar("Answer")


class Chain:
    """Submits tasks that wait for others, and restarts the server each time it was killed."""

    def __init__(self, server: ServerProcess, home: Path) -> None:
        self._server = server
        self._program, self.witness = home / "program.sh", home / "witness"
        self._program.write_text(PROGRAM)
        self.kills = 0

    def start(self, write: int) -> Profile:
        return self._server.start("--kill-at", f"{write}:after", module=FAULTY)

    async def tell(self, client: Client) -> list[Task]:
        """Submit all tasks, and return them as they are at their ends."""
        prepare = await self._submit(client, "prepare")
        train = await self._submit(client, "train", AfterSpec(task=prepare))
        page = await self._submit(client, "page", AfterSpec(task=train, outcome="failed"))
        first = [AfterSpec(task=number, outcome="ended") for number in (train, page)]
        clean = await self._submit(client, "clean", *first)
        self.witness.with_name("witness.all").touch()
        return [await self._ended(client, number) for number in (prepare, train, page, clean)]

    async def _submit(self, client: Client, name: str, *after: AfterSpec) -> int:
        spec = TaskSpec(
            version=2,
            name=name,
            spec=ProgramSpec(entrypoint=str(self._program), parameters=[name, str(self.witness)]),
            resource=ResourceSpec(node_count=1),
            options=OptionsSpec(after=after),
        )
        made = await self._patient(lambda: client.tasks.create(spec, request_id=f"{name}-request"))
        return made.id

    async def _ended(self, client: Client, number: int) -> Task:
        while True:
            task = await self._patient(lambda: client.tasks.get(number))
            if task.state == TaskState.TASK_STATE_FINISHED:
                return task
            await asyncio.sleep(0.05)

    async def _patient(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call until the server answers. Raises errors that a retry cannot fix."""
        while True:
            try:
                return await ask()
            except (Unreachable, TimedOut):
                if self._server.running:
                    await asyncio.sleep(0.02)
                else:
                    self.kills += 1
                    await asyncio.to_thread(self.start, STRIDE)


@pytest.mark.timeout(300)  # many starts of a server
@pytest.mark.parametrize("offset", [2, 6])
async def test_a_chain_runs_in_order_whenever_the_server_is_killed(
    server: ServerProcess, tmp_path: Path, offset: int
) -> None:
    chain = Chain(server, tmp_path)
    async with Client(await asyncio.to_thread(chain.start, offset)) as client:
        prepare, train, page, clean = await chain.tell(client)
    for task in (prepare, train, clean):
        assert (task.outcome, task.run_count) == (TaskOutcome.TASK_OUTCOME_SUCCEEDED, 1), task
    assert page.outcome == TaskOutcome.TASK_OUTCOME_CANCELED
    assert page.reason == f"task {train.id} was to have failed first, and ended SUCCEEDED"
    told = [
        f"{name} {word}" for name in ("prepare", "train", "clean") for word in ("begins", "ends")
    ]
    assert chain.witness.read_text().splitlines() == told
    assert chain.kills >= 2

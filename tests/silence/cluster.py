"""Functions for tests of silence with a real server: short heartbeats, tasks that write records, and checks."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from hai.client.client import Client
from hai.client.errors import TimedOut, Unreachable
from hai.host.atomic_write import replace_file
from hai.v1.task_pb2 import Task, TaskOutcome
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.timing import Timing
from hai_backend.launch import processes
from tests.silence import program, witness

REAL_TIME = os.environ.get("HAI_SILENCE_REAL_TIME") == "1"
"""The case as it happened: heartbeats of 5 s, a server that is stopped for 45 s."""

TIMING = Timing() if REAL_TIME else Timing(heartbeat=0.25)
SILENCE = 45.0 if REAL_TIME else 3 * TIMING.stream_patience
"""Seconds of silence that no agent takes for a pause."""

BACK_WITHIN = 10.0
"""Seconds after a silence within which all must be as if nothing had happened."""

Answer = TypeVar("Answer")
_names = itertools.count()


def configure(home: Path) -> None:
    """Write the settings of a server for these tests into its home directory."""
    home.mkdir(parents=True, exist_ok=True)
    if not REAL_TIME:
        with (home / "hai.toml").open("a") as file:
            file.write(f"agent_heartbeat = {TIMING.heartbeat}\n")


def task_spec(
    directory: Path, *arguments: str, nodes: int = 1, priority: int = 10, name: str = ""
) -> TaskSpec:
    """Return a task whose ranks write records into `directory` (see program.py)."""
    return TaskSpec(
        version=2,
        name=name or f"t{next(_names)}",
        priority=priority,
        spec=ProgramSpec(entrypoint=str(witness.PROGRAM), parameters=[str(directory), *arguments]),
        resource=ResourceSpec(node_count=nodes),
    )


async def patient(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Call `ask` until a server answers."""
    while True:
        try:
            return await ask()
        except (Unreachable, TimedOut):
            await asyncio.sleep(0.05)


async def until(true: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Wait until `true` returns true. Raises AssertionError, which names `what`, after so many seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await true():
        assert asyncio.get_running_loop().time() < deadline, (
            f"after {seconds:g} s still not: {what}"
        )
        await asyncio.sleep(0.05)


async def until_running(client: Client, task_id: int) -> Task:
    """Wait until the programs of all ranks have started, and return the task."""

    async def running() -> bool:
        ranks = (await patient(lambda: client.tasks.get(task_id))).run.ranks
        return bool(ranks) and all(rank.HasField("start_time") for rank in ranks)

    await until(running, 60, f"all programs of task {task_id} run")
    return await client.tasks.get(task_id)


async def lines(client: Client, task_id: int, rank: int = 0) -> list[str]:
    """Return what the program of a rank has printed in all its runs. Waits until a server answers."""
    return await patient(lambda: _lines(client, task_id, rank))


async def _lines(client: Client, task_id: int, rank: int) -> list[str]:
    answers = client.logs.tail(task_id, ranks=(rank,))
    texts = [line.text async for answer in answers for line in answer.lines]
    return [text for text in texts if text.startswith("run ")]


async def undisturbed(client: Client, task_id: int, steps: Sequence[int], *, within: float) -> Task:
    """Check that the task succeeds with one run, and that each rank has printed each of its lines once, in order."""
    task = await patient(lambda: client.tasks.wait(task_id, timeout=within))
    assert (task.outcome, task.run_count) == (TaskOutcome.TASK_OUTCOME_SUCCEEDED, 1), task
    for rank, count in enumerate(steps):
        printed = await lines(client, task_id, rank)
        assert printed == [program.line(step) for step in range(count)], f"rank {rank}"
    return task


async def until_nodes_are_free(client: Client, seconds: float = BACK_WITHIN) -> None:
    async def free() -> bool:
        return not any(node.tenants for node in await client.nodes.list())

    await until(free, seconds, "all nodes are free")


def agent(home: Path, key: str) -> int:
    """Return the process id in a rank's agent.pid: that of the supervisor, if there is one, else of the agent."""
    found = processes.read_pid_file(home / "run" / key / "agent.pid")
    assert found is not None, f"{key} has no agent"
    return found.pid


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT to who still lives."""
    held = tuple(pids)
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def route_agents(home: Path, addresses: str) -> None:
    """Let agents of this home connect by these addresses from now on. The server keeps its own address."""
    path = home / "server.json"
    facts = {**json.loads(path.read_text()), "address": addresses}
    replace_file(path, json.dumps(facts).encode())

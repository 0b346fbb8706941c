"""Latency of suspend requests, cost of checking for one, and how soon an urgent task runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hai.client.client import Client
from hai.client.profile import Profile
from hai.v1.task_pb2 import Task, TaskState
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.bench.figures import Figure, percentile
from tests.support.servers import server_process

SUSPENDS, URGENT = 100, 15
LOOKING = """
import sys, time, hai
hai.receive_suspend_command()  # the first look opens the channel
print("looking", flush=True)
while not hai.receive_suspend_command():
    time.sleep(0.0005)
print("seen", time.time(), flush=True)
hai.go_suspend()
"""
FIRST_LINE = "import time; print('first', time.time(), flush=True)"
COST = """
import mmap, os, tempfile, timeit
file = tempfile.NamedTemporaryFile(); file.write(b"\\0" * 1024); file.flush()
os.environ.update(HAI_CONTROL_FILE=file.name, HAI_AGENT_SOCKET="/nowhere", HAI_RANK_KEY="1-1-0")
os.environ["MARSV2_TASK_TYPE"] = "training"
import hai
look = hai.receive_suspend_command
print(min(timeit.repeat(look, number=200_000, repeat=5)) / 200_000 * 1e6)
"""


def spec(name: str, priority: int, code: Path) -> TaskSpec:
    return TaskSpec(
        version=2,
        name=name,
        priority=priority,
        spec=ProgramSpec(entrypoint=str(code)),
        resource=ResourceSpec(node_count=1),
    )


async def printed(client: Client, task_id: int, word: str, run: int = 0) -> float:
    """Wait until the program prints `word`, and return the time that it printed after it."""
    async for answer in client.logs.tail(task_id, run=run, follow=True):
        for line in answer.lines:
            if line.text.startswith(word):
                return float(line.text.split()[1]) if " " in line.text else 0.0
    raise RuntimeError(f"task {task_id} ended before it printed {word!r}")


async def running(client: Client, task_id: int, run: int) -> Task:
    async for change in client.tasks.watch(f"id:{task_id}"):
        for task in change.tasks:
            if task.state == TaskState.TASK_STATE_RUNNING and task.run_count >= run:
                return task
    raise RuntimeError("the watch ended")


async def suspend_latencies(profile: Profile, code: Path) -> list[float]:
    """Return the milliseconds from the suspend call until the program sees the flag."""
    async with Client(profile) as client:
        task = await client.tasks.create(spec("looking", 10, code))
        found = []
        for run in range(1, SUSPENDS + 1):
            await running(client, task.id, run)
            await printed(client, task.id, "looking", run)
            asked = time.time()
            await client.tasks.suspend(task.id, delay_seconds=0.001)
            found.append((await printed(client, task.id, "seen", run) - asked) * 1000)
        await client.tasks.stop(task.id)
        return found


async def urgent_latencies(profile: Profile, looking: Path, first: Path) -> list[float]:
    """Return the seconds from submission at HIGH on a full cluster until the first line of the program."""
    async with Client(profile) as client:
        low = [await client.tasks.create(spec(f"low{i}", 0, looking)) for i in range(4)]
        found = []
        for i in range(URGENT):
            for task in low:
                run = (await running(client, task.id, 1)).run_count
                await printed(client, task.id, "looking", run)
            asked = time.time()
            high = await client.tasks.create(spec(f"high{i}", 30, first))
            found.append(await printed(client, high.id, "first") - asked)
            await client.tasks.wait(high.id)
        for task in low:
            await client.tasks.stop(task.id)
        return found


def figures() -> Iterator[Figure]:
    cost = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True)
    yield Figure("receive_suspend_command(), nothing asked", float(cost.stdout), "us", 1)
    with server_process("--nodes", "4") as server:
        looking, first = server.home / "looking.py", server.home / "first.py"
        looking.write_text(LOOKING)
        first.write_text(FIRST_LINE)
        seen = asyncio.run(suspend_latencies(server.profile(), looking))
        yield Figure("suspend request until the program sees it, p50", percentile(seen, 50), "ms")
        yield Figure(
            "suspend request until the program sees it, p99", percentile(seen, 99), "ms", 50
        )
        urgent = asyncio.run(urgent_latencies(server.profile(), looking, first))
        yield Figure(
            "HIGH on a full cluster until its first line, median", percentile(urgent, 50), "s", 1
        )

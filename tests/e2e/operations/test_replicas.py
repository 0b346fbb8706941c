"""Three servers with one PostgreSQL: one leads, all answer. Leaders are killed, paused and replaced under load."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from hai.client.client import Client
from hai.client.errors import TimedOut, Unreachable
from hai.client.profile import Profile
from hai.v1.task_pb2 import Task, TaskOutcome
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from tests.support.databases import create_database, drop_database
from tests.support.servers import Replicas, ServerProcess

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.xdist_group("replicas"),
    pytest.mark.timeout(600),  # `tests.bench leader` measures how soon another leads
]

PROGRAM = Path(__file__).parent / "counting_slowly.py"
KILLS, BETWEEN_KILLS, SUBMISSIONS = 3, 1.5, 30
Answer = TypeVar("Answer")
_names = itertools.count()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[Replicas]:
    """Started once; every test leaves all three running."""
    url = asyncio.run(create_database(postgres))
    made = Replicas(tmp_path_factory.mktemp("replicas"), 3, url, "--nodes", "3")
    made.start()
    yield made
    made.end()
    asyncio.run(drop_database(postgres, url))


async def patient(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Call until a server answers."""
    while True:
        try:
            return await ask()
        except (Unreachable, TimedOut):
            await asyncio.sleep(0.05)


def counting(lines: int, witness: Path, priority: int = 10) -> TaskSpec:
    program = ProgramSpec(entrypoint=str(PROGRAM), parameters=[str(lines), str(witness)])
    return TaskSpec(version=2, name=f"t{next(_names)}", spec=program, priority=priority)


async def submit(profile: Profile, spec: TaskSpec) -> Task:
    async with Client(profile) as client:
        return await patient(lambda: client.tasks.create(spec, request_id=f"once-{spec.name}"))


async def kill(server: ServerProcess, number: int = signal.SIGKILL) -> None:
    await asyncio.to_thread(server.end, number)


def others(replicas: Replicas, server: ServerProcess) -> list[ServerProcess]:
    return [other for other in replicas.servers if other is not server]


async def undisturbed(client: Client, task: Task, lines: int, witness: Path) -> None:
    """Check that the task had one run, printed every line once, and that its program began and ended once."""
    task = await patient(lambda: client.tasks.wait(task.id, timeout=30))
    assert (task.outcome, task.run_count) == (TaskOutcome.TASK_OUTCOME_SUCCEEDED, 1), task
    tail = [line.text async for answer in client.logs.tail(task.id) for line in answer.lines]
    assert tail == [f"line {i}" for i in range(lines)]
    assert [word for told, word in witnessed(witness) if told == task.id] == ["begin", "end"]


def witnessed(witness: Path) -> list[tuple[int, str]]:
    """Return what programs have recorded, as task and word, in order of time."""
    words = (line.split() for line in witness.read_text().splitlines())
    return [(int(task), word) for task, word, _ in words]


async def test_a_task_runs_whichever_server_is_asked(replicas: Replicas, tmp_path: Path) -> None:
    witness = tmp_path / "witness"

    async def run(profile: Profile) -> None:
        task = await submit(profile, counting(3, witness))
        async with Client(profile) as client:
            await undisturbed(client, task, 3, witness)

    await asyncio.gather(*(run(replicas.profile(server)) for server in replicas.servers))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])
async def test_another_leads_soon(
    replicas: Replicas, tmp_path: Path, number: signal.Signals
) -> None:
    leader = await replicas.leader()
    assert leader.process is not None
    spec = counting(1, tmp_path / "witness")
    os.kill(leader.process.pid, number)
    task = await submit(replicas.profile(*others(replicas, leader)), spec)
    if number is signal.SIGKILL:
        leader.process.wait()
        await asyncio.to_thread(leader.listen)
        return
    asked = asyncio.ensure_future(submit(replicas.profile(leader), spec))  # the server is paused
    await asyncio.sleep(0.3)
    os.kill(leader.process.pid, signal.SIGCONT)
    assert (await asked).id == task.id
    assert await replicas.leader() is not leader
    while not re.search("deposed.*Following\\(address='127", leader.log_tail(), re.DOTALL):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_who_begins_to_lead_looks_for_files_of_tasks_that_nobody_knows(
    replicas: Replicas, tmp_path: Path
) -> None:
    """This includes a server that started as a follower before the files existed."""
    leader = await replicas.leader()
    spec = counting(1, tmp_path / "witness")
    before = await submit(replicas.profile(leader), spec)
    (replicas.shared / "logs" / str(before.id + 5)).mkdir(parents=True)
    await kill(leader)
    task = await submit(replicas.profile(*others(replicas, leader)), counting(1, tmp_path / "w"))
    assert task.id == before.id + 6
    await asyncio.to_thread(leader.listen)


async def test_a_storm_with_leaders_killed_loses_and_doubles_nothing(
    replicas: Replicas, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    lines = 400
    long = [await submit(replicas.profile(), counting(lines, witness, 30)) for _ in range(2)]
    made: list[Task] = []
    over = asyncio.Event()

    async def load(profile: Profile) -> None:
        while not over.is_set() or len(made) < SUBMISSIONS:
            made.append(await submit(profile, counting(5, witness)))

    async def kills() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(BETWEEN_KILLS)
            leader = await replicas.leader()
            await kill(leader)
            await asyncio.to_thread(leader.listen)
        over.set()

    # The addresses are read now, because a server that is restarting does not report one. Each keeps its port.
    ways = [replicas.profile(server) for server in replicas.servers]
    await asyncio.gather(kills(), *map(load, ways))
    assert len({task.id for task in made}) == len(made)
    async with Client(replicas.profile()) as client:
        for task in long:
            await undisturbed(client, task, lines, witness)
        await undisturbed(client, made[0], 5, witness)  # check that the queue is not stuck
        known = Counter([task.name async for task in client.tasks.all()])
        assert {known[task.name] for task in made} == {1}
        await asyncio.gather(*(patient(lambda i=t.id: client.tasks.stop(i)) for t in made))  # type: ignore[misc]
    begun = Counter(task for task, word in witnessed(witness) if word == "begin")
    assert set(begun.values()) == {1}, "some task was started twice"


async def test_a_rolling_restart_disturbs_no_program(replicas: Replicas, tmp_path: Path) -> None:
    witness, lines = tmp_path / "witness", 250
    async with Client(replicas.profile()) as client:
        task = await submit(replicas.profile(), counting(lines, witness, 30))
        heard: list[str] = []

        async def listen() -> None:
            async for answer in client.logs.tail(task.id, follow=True):
                heard.extend(line.text for line in answer.lines)

        listening = asyncio.ensure_future(listen())
        for server in replicas.servers:
            await kill(server, signal.SIGTERM)
            assert server.process is not None
            assert server.process.returncode == 0
            await asyncio.to_thread(server.listen)
        await undisturbed(client, task, lines, witness)
        await listening
        assert heard == [f"line {i}" for i in range(lines)]

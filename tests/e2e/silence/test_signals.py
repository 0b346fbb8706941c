"""SIGSTOP and SIGCONT of the program, the processes around it and the server, while the task runs, ends or is asked to.

Each case is a separate task, and all run at the same time on one server. By default, one case in four runs. These cover
each pair of stopped processes and concurrent event. HAI_SILENCE_ALL=1 runs all.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_pb2 import Task, TaskOutcome
from hai.v1.task_spec_pb2 import OptionsSpec
from hai_backend.lifecycle.limits import DEFAULTS
from tests.silence import cluster, program, witness
from tests.silence.ranks import Pids
from tests.support.servers import ServerProcess

PACE = 0.05
ENDS_WITHIN = 45.0  # generous, for 16 cases at once; a stopped agent is killed after 7 s

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("silence-signals")]


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `stopped` has names as in `Pids`, or none for the server. `meanwhile` is an item of MEANWHILE."""

    stopped: tuple[str, ...]
    meanwhile: str
    prints: bool
    obeys: bool

    def __str__(self) -> str:
        how = f"{'prints' if self.prints else 'silent'}, {'obeys' if self.obeys else 'stubborn'}"
        return f"{'+'.join(self.stopped) or 'server'}: {self.meanwhile}; {how}"

    def arguments(self, finish: Path) -> list[str]:
        words = ["--pace", str(PACE), "--until", str(finish)]
        words += [] if self.prints else ["--silent"]
        return words if self.obeys else [*words, "--stubborn"]


MEANWHILE = ("nothing", "finish", "stop", "suspend")
HOW = tuple(itertools.product((True, False), repeat=2))


def cases(stopped: tuple[tuple[str, ...], ...]) -> list[Case]:
    """Return all cases, or a Latin square: for each pair of `stopped` and `meanwhile`, one of the four programs."""
    return [
        Case(who, what, *how)
        for (i, who), (j, what), (k, how) in itertools.product(
            enumerate(stopped), enumerate(MEANWHILE), enumerate(HOW)
        )
        if os.environ.get("HAI_SILENCE_ALL") == "1" or (i + j) % 4 == k
    ]


IN_A_RANK = cases((("program",), ("agent",), ("supervisor",), ("agent", "supervisor")))
OF_THE_SERVER = cases(((),))


class Played:
    """Plays one case on a server."""

    def __init__(self, case: Case, server: ServerProcess, client: Client, directory: Path) -> None:
        self.case = case
        self._server, self._client = server, client
        self._directory = directory
        self._finish = directory / f"finish {case}"
        self._task = 0
        self.asked: asyncio.Task[Task] | None = None

    async def start(self) -> None:
        spec = cluster.task_spec(self._directory, *self.case.arguments(self._finish))
        spec.options.CopyFrom(OptionsSpec(ack_within=1, save_within=1))
        self._task = (await self._client.tasks.create(spec)).id
        await cluster.until_running(self._client, self._task)

    async def play(self) -> None:
        """Stop the processes for a while, make the call of the case meanwhile, and check the end."""
        with self._stopped():
            self.ask()
            await self._is_shown_as_silent()
            await asyncio.sleep(cluster.SILENCE)
        await self.check()

    def ask(self) -> None:
        """Finish, stop or suspend the task while processes are stopped, as the case says."""
        if self.case.meanwhile == "finish":
            self._finish.touch()
        tasks = self._client.tasks
        asks: dict[str, Callable[[], Awaitable[Task]]] = {
            "stop": lambda: tasks.stop(self._task),
            "suspend": lambda: tasks.suspend(self._task),
        }
        if self.case.meanwhile in asks:
            asked = cluster.patient(asks[self.case.meanwhile])
            self.asked = asyncio.create_task(asked)  # type: ignore[arg-type]

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        pids = Pids(self._server.home / "run" / f"{self._task}-1-0").named()
        with cluster.stopped(pids[name] for name in self.case.stopped):
            yield

    async def _is_shown_as_silent(self) -> None:
        if "agent" not in self.case.stopped or self.case.meanwhile in ("stop", "suspend"):
            return

        async def shown() -> bool:
            task = await self._client.tasks.get(self._task)
            return task.run.ranks[0].HasField("silent_since_time")

        # A server that has just started first gives agents time to return before it shows any as silent.
        within = cluster.SILENCE + DEFAULTS.return_within
        await cluster.until(shown, within, "the agent is shown as silent")

    async def check(self) -> None:
        """Check that the task ends as without a stop, that no rank ran twice at once, and that the log is complete."""
        if self.asked is not None:
            await self.asked
        if self.case.meanwhile == "suspend":
            await cluster.until(self._second_run, ENDS_WITHIN, "the suspended task runs again")
        self._finish.touch()
        task = await cluster.patient(
            lambda: self._client.tasks.wait(self._task, timeout=ENDS_WITHIN)
        )
        runs = 2 if self.case.meanwhile == "suspend" else 1
        if self.case.meanwhile == "stop":
            assert task.outcome == TaskOutcome.TASK_OUTCOME_STOPPED, task
        else:
            assert (task.outcome, task.run_count) == (TaskOutcome.TASK_OUTCOME_SUCCEEDED, runs), (
                task
            )
        assert not task.run.ranks[0].HasField("silent_since_time")
        words = witness.words(self._directory, self._task)
        assert [word for _, word in words if word == "beside"] == []
        await self._log_is_whole(runs)

    async def _second_run(self) -> bool:
        return (await self._client.tasks.get(self._task)).run.number == 2

    async def _log_is_whole(self, runs: int) -> None:
        if not self.case.prints:
            return
        printed = await cluster.lines(self._client, self._task)
        for run in range(1, runs + 1):
            of_run = [text for text in printed if text.startswith(f"run {run} ")]
            assert of_run == [program.line(step, run) for step in range(len(of_run))]
            steps = witness.steps(self._directory, self._task, run)
            assert steps in (None, len(of_run)), "a program that ended by itself has left all of it"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("signals")
    cluster.configure(home)
    made = ServerProcess(home, "--nodes", "64")
    made.start()
    yield made
    if made.running:
        made.end()
    made.sweep()


async def play_all(
    chosen: list[Case],
    server: ServerProcess,
    directory: Path,
    play: Callable[[list[Played]], Awaitable[list[object]]],
) -> None:
    """Run all cases at the same time. Raises an error with all failures."""
    async with Client(server.profile()) as client:
        played = [Played(case, server, client, directory) for case in chosen]
        async with asyncio.TaskGroup() as group:
            for each in played:
                group.create_task(each.start())
        results = await play(played)
        wrong = {str(p.case): r for p, r in zip(played, results, strict=True) if r is not None}
        assert not wrong, "\n".join(f"{case}: {error!r}" for case, error in wrong.items())
        await cluster.until_nodes_are_free(client)


async def test_whoever_is_stopped_in_a_rank(server: ServerProcess, tmp_path: Path) -> None:
    async def play(played: list[Played]) -> list[object]:
        return await asyncio.gather(*(each.play() for each in played), return_exceptions=True)

    await play_all(IN_A_RANK, server, tmp_path, play)


async def test_a_server_that_is_stopped(server: ServerProcess, tmp_path: Path) -> None:
    async def play(played: list[Played]) -> list[object]:
        assert server.process is not None
        with cluster.stopped([server.process.pid]):
            for each in played:
                each.ask()
            await asyncio.sleep(cluster.SILENCE)
        return await asyncio.gather(*(each.check() for each in played), return_exceptions=True)

    await play_all(OF_THE_SERVER, server, tmp_path, play)

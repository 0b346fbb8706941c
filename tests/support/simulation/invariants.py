"""Checks of what must be true during a simulation and at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hai_backend.domain.task import Rank, RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle.limits import DEFAULTS
from hai_backend.lifecycle.rules.transition import may_run
from hai_backend.logs.store import LogStore
from tests.support.simulation.agent import SimulatedAgent
from tests.support.simulation.agent_pool import AgentPool
from tests.support.simulation.server import TIMING, SimulatedServer

_EVERY_SECONDS = 3.0
_SLACK_SECONDS = 8.0  # for writes that wait for others, and for late servers


class Invariants:
    """Checks that run beside the simulation and at its end. The simulation raises the `failures`."""

    def __init__(
        self, pool: AgentPool, server: Callable[[], SimulatedServer | None], logs: Path
    ) -> None:
        self.failures: list[BaseException] = []
        self._pool = pool
        self._server = server
        self._logs = logs
        self._of: SimulatedServer | None = None
        self._well_since = 0.0
        self._expected: dict[RankKey, float] = {}  # from when on an agent's messages are expected

    def raise_failures(self) -> None:
        """Raise the first failure."""
        for failure in (*self._pool.failures, *self.failures):
            raise failure

    async def run(self) -> None:
        """Check again and again. Never returns."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                self._check_silence_report()
            except AssertionError as error:
                self.failures.append(error)

    def at_the_end(self, tasks: Iterable[Task]) -> None:
        """Check that nothing was lost that a server had acknowledged. Raises AssertionError."""
        self.raise_failures()
        store = LogStore(self._logs, 1_000_000, alone=False)
        for agent in self._pool.agents:
            self._check_log(agent, store)
        for task in tasks:
            kept = self._pool.states[task.id]
            assert task.whole_life_state >= kept, f"task {task.id} lost the state {kept}"

    def _check_log(self, agent: SimulatedAgent, store: LogStore) -> None:
        """Check that the stored log has each line once, and everything that was acknowledged."""
        key = agent.key
        texts = [*_texts(store, key)]
        wanted = [f"line {number + 1}" for number in range(len(texts))]
        assert texts == wanted, f"{key}: lines were lost or doubled: {texts}"
        acknowledged = agent.spool.acknowledged
        assert store.size(key) >= acknowledged, f"{key}: {acknowledged} bytes were acknowledged"
        if agent.recorded:
            assert len(texts) == agent.printed, f"{key} printed {agent.printed}, kept {len(texts)}"

    def _check_silence_report(self) -> None:
        """Check that a leading server, if it works normally, shows which agents are silent."""
        now, server = asyncio.get_running_loop().time(), self._server()
        well = (
            server is not None and not server.process.frozen and server.listening and server.fresh()
        )
        if server is not self._of or not well or server is None:
            self._of, self._well_since = server, now
            self._expected.clear()
            return
        patience = DEFAULTS.return_within + 2 * TIMING.silent_after + _SLACK_SECONDS
        judged = now - self._well_since > patience
        keys = set()
        for key, rank in _that_may_run(server):
            keys.add(key)
            since = max(self._expected.setdefault(key, now), server.last_message_at.get(key, 0.0))
            if judged:
                self._judge(key, rank, now - since)
        self._expected = {key: self._expected[key] for key in keys}

    def _judge(self, key: RankKey, rank: Rank, silent_seconds: float) -> None:
        """Check that the server shows an agent as silent from which it receives nothing."""
        if silent_seconds > TIMING.silent_after + _SLACK_SECONDS:
            shown = rank.silent_since is not None
            assert shown, f"{key} is silent for {silent_seconds:.0f} s, and nobody is told"


def _texts(store: LogStore, key: RankKey) -> Iterator[str]:
    cursor = ""
    while True:
        lines, cursor = store.read(key.task_id, ranks=(key.rank,), run=key.run, cursor=cursor)
        if not lines:
            return
        yield from (line.text for line in lines)


def _that_may_run(server: SimulatedServer) -> Iterator[tuple[RankKey, Rank]]:
    """Yield the ranks whose programs may run."""
    for task in server.task_manager.unfinished().values():
        run = task.run
        if task.state is TaskState.RUNNING and run is not None and run.state is not RunState.ENDED:
            for rank in run.ranks:
                if may_run(rank):
                    yield RankKey(task.id, run.number, rank.index), rank

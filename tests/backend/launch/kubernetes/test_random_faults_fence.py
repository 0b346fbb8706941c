"""The simulation with random faults detects a broken fence.

Each mutant breaks one rule of docs/contributing/fencing.md.
`python -m tests.backend.launch.kubernetes.test_random_faults_fence 100` prints how many of 100 seeds detect each one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.lease import Lease
from hai_backend.agent.server.session import Session
from tests.support.simulation.agent import AgentComponents
from tests.support.simulation.server import FENCE_SECONDS, SETTINGS, ServerComponents
from tests.support.simulation.simulation import Components, Conditions, Simulation

# Each mutant must be detected within so many seeds, counted from its seed in FIRST, or from 0.
SEEDS = 60
FIRST = {"a lease that counts from the answer": 19}


class TwiceAsLong(Lease):
    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        super().__init__(2 * seconds, clock)


class CountsFromTheAnswer(Session):
    def _renew_lease(self, answer: pb.HeartbeatAnswered) -> None:
        self._heartbeats_sent_at[answer.number] = self._lease.now()
        super()._renew_lease(answer)


class NeverAttachesAgain(Session):
    """A session that does not attach again after its stream has ended."""

    async def run(self) -> None:
        await self._attach_once()
        await asyncio.Event().wait()


NEVER = 1e6
MUTANTS = {
    "a lease twice as long": Components(AgentComponents(lease=TwiceAsLong)),
    "a lease that counts from the answer": Components(AgentComponents(session=CountsFromTheAnswer)),
    "a supervisor that sleeps": Components(AgentComponents(pause_seconds=NEVER)),
    "a supervisor that wakes slowly": Components(AgentComponents(checks_first=False)),
    "no supervisor, and an agent that never attaches again": Components(
        AgentComponents(session=NeverAttachesAgain, pause_seconds=NEVER, ends_before=False)
    ),
    "a server that is sure too early": Components(
        servers=ServerComponents(settings=replace(SETTINGS, fence_after=FENCE_SECONDS / 2))
    ),
}


def quiet_weather(seed: int) -> Conditions:
    """Return conditions in which nodes become unreachable, and no other faults occur."""
    return replace(
        Conditions.of(seed),
        nodes=7,
        tasks=5,
        faults=0.0,
        mishap_seconds=NEVER,
        restart_seconds=NEVER,
        silence_seconds=40.0,
        quiet=1.0,
        longest_work=500.0,
    )


def noticed(coroutines: Components, seeds: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the seeds whose simulation fails, with the errors."""
    for seed in range(first, first + seeds):
        try:
            Simulation(seed, coroutines, quiet_weather(seed)).run()
        except AssertionError as error:
            yield seed, str(error)


def test_whole_fences_hold_in_the_same_weather() -> None:
    """Without a mutant, the same simulations succeed."""
    assert not list(noticed(Components(), 8))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_fence_is_noticed(mutant: str) -> None:
    found = next(noticed(MUTANTS[mutant], SEEDS, FIRST.get(mutant, 0)), None)
    assert found is not None, f"nobody has noticed {mutant}"


if __name__ == "__main__":
    import logging

    import structlog

    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    for name, mutant in MUTANTS.items():
        if len(sys.argv) > 2 and sys.argv[2] not in name:
            continue
        seen = list(noticed(mutant, int(sys.argv[1])))
        print(f"{name}: {len(seen)} {seen[:3]}", flush=True)

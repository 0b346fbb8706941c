"""Reports of checkpoints: limited by the agent's clock, sent at most once per second, and complete."""

from __future__ import annotations

import asyncio

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program import checkpoints
from hai_backend.agent.program.checkpoints import Checkpoints
from hai_backend.agent.server.outgoing import Outgoing


class Rank:
    """A queue of messages for the server, and a clock."""

    def __init__(self) -> None:
        self.now = 50.0
        self.outgoing = Outgoing()
        self.woken = asyncio.Event()
        self.staged = False
        self.checkpoints = Checkpoints(
            self.outgoing, self.woken.set, lambda: self.now, lambda: self.staged
        )
        self.checkpoints.start()

    def save(self, after: float, seconds: float, step: int = -1) -> None:
        self.now += after
        self.checkpoints.saved(seconds, step)

    def taken(self) -> pb.CheckpointSaved | None:
        message = self.outgoing.next(log_is_sent=True)
        if message is None:
            return None
        self.outgoing.mark_written(message)
        return message.checkpoint


@pytest.fixture
async def rank() -> Rank:
    return Rank()


async def test_the_first_goes_at_once(rank: Rank) -> None:
    rank.save(10, 2.5, step=3)
    assert rank.taken() == pb.CheckpointSaved(seconds=2.5, step=3, count=1, program_seconds=10)


async def test_none_took_longer_than_the_time_since_the_last_one(rank: Rank) -> None:
    rank.save(10, 99)
    assert rank.taken().seconds == 10
    rank.save(2, 99)
    assert rank.taken().seconds == 2


async def test_thousands_are_one_message(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_PACE_SECONDS", 0.01)
    for _ in range(5000):
        rank.save(0.000001, 0.0000005)
    assert rank.taken().count == 1
    rank.woken.clear()
    await asyncio.wait_for(rank.woken.wait(), 5)
    message = rank.taken()
    assert message.count == 4999
    assert message.seconds == pytest.approx(0.0000005)
    assert rank.taken() is None


async def test_while_the_server_is_away_they_add_up(rank: Rank) -> None:
    rank.save(10, 2.0)
    rank.save(10, 4.0)
    rank.save(10, 0.0, step=8)  # unknown duration
    message = rank.taken()
    assert message == pb.CheckpointSaved(seconds=3.0, step=8, count=3, program_seconds=30)
    assert rank.taken() is None


async def test_a_staged_one_is_not_forgotten(rank: Rank) -> None:
    for staged in (True, False):
        rank.staged = staged
        rank.save(1, 0.5)
    assert rank.taken().staged
    rank.save(1, 0.5)
    assert not rank.taken().staged


async def test_the_last_ones_are_said_before_the_run_ends(rank: Rank) -> None:
    rank.save(10, 2.0)
    rank.taken()
    rank.save(0.25, 0.25)
    assert rank.taken() is None
    rank.checkpoints.flush()
    assert rank.taken().count == 1

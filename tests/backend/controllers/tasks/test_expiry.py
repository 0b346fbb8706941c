"""An idle stream ends exactly when the token of its caller expires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hai.client.client import Client
from hai.client.errors import HaiError
from hai_backend.api.server.handler_wrapper import StreamCloser
from hai_backend.auth.directory import Directory
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.tasks.expiry import Expiry
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import TokenScope, User
from hai_backend.domain.errors import Unauthenticated
from hai_backend.store.memory.store import MemoryStore
from hai_backend.testing import ManualClock
from tests.support.servers import running_server
from tests.support.virtual_time import LoopTimers, run_virtually

HOUR = 3600.0
YEAR = 366 * 24 * HOUR


class SetBack(LoopTimers):
    """A clock that is set back by half an hour, half an hour after its start."""

    def __init__(self) -> None:
        self._began = super().now()

    def now(self) -> float:
        now = super().now()
        return now if now - self._began < HOUR / 2 else now - HOUR / 2


class Stay:
    """A directory of users, and idle streams."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.directory = Directory(MemoryStore())
        self.streams = StreamCloser()
        self.directory.checks.append(self.streams.check)
        self.expiring = Expiry(clock, self.directory.next_expiry, self.directory.check)
        self.directory.on_expiry = self.expiring.expires_at

    async def stream(self, seconds: float | None = None) -> asyncio.Task[Any]:
        """Start an idle stream with a token that is valid for this time, or without limit if None."""
        now = self.clock.now()
        until = None if seconds is None else now + seconds
        made, _ = await self.directory.create_token("ada", TokenScope.ALL, now, expires_at=until)

        def admitted() -> None:
            self.directory.identity_of(made.id, self.clock.now())

        return asyncio.ensure_future(
            self.streams.wait_for_response(asyncio.Event().wait(), admitted)
        )


def lasted(seconds: float, clock: Callable[[], Clock] = LoopTimers, *before: float) -> float:
    """Return how long a stream lasts whose token is valid for `seconds`.

    There are other streams with earlier and later tokens.
    """

    async def story() -> float:
        stay, loop = Stay(clock()), asyncio.get_running_loop()
        await stay.directory.create_user(User("ada"))
        for other in before:
            await stay.stream(other)
        began, ours = loop.time(), await stay.stream(seconds)
        others = [await stay.stream(), await stay.stream(seconds + 1.0)]
        with pytest.raises(Unauthenticated, match="expired at"):
            await ours
        ended = loop.time()
        assert not any(other.done() for other in others)
        stay.expiring.close()
        return ended - began

    return run_virtually(story())


@pytest.mark.parametrize(
    ("seconds", "before"),
    [
        pytest.param(HOUR, (), id="the only one"),
        pytest.param(HOUR, (HOUR / 2, 2 * HOUR), id="between others"),
        pytest.param(3 * YEAR, (), id="in years"),
    ],
)
def test_a_quiet_stream_ends_when_its_token_expires(seconds: float, before: Any) -> None:
    assert lasted(seconds, LoopTimers, *before) == pytest.approx(seconds, abs=0.01)


def test_a_clock_that_is_set_back_gives_the_time_back() -> None:
    assert lasted(HOUR, SetBack) == pytest.approx(1.5 * HOUR, abs=0.01)


def test_a_right_for_a_time_is_looked_at_when_it_ends() -> None:
    async def story() -> float:
        stay, loop = Stay(LoopTimers()), asyncio.get_running_loop()
        looked = asyncio.Event()
        await stay.directory.grant(
            Grant("ada", False, "manage_tasks", expires_at=stay.clock.now() + HOUR)
        )
        stay.directory.checks.append(looked.set)
        began = loop.time()
        await looked.wait()
        stay.expiring.close()
        return loop.time() - began

    assert run_virtually(story()) == pytest.approx(HOUR, abs=0.01)


def test_a_new_token_does_not_make_all_be_looked_at() -> None:
    async def story() -> tuple[int, int]:
        stay, looks = Stay(LoopTimers()), list[bool]()
        await stay.directory.create_user(User("ada"))
        stay.directory.checks.append(lambda: looks.append(True))
        for until in (None, 3 * HOUR, HOUR, 2 * HOUR):
            now = stay.clock.now()
            expires = None if until is None else now + until
            await stay.directory.create_token("ada", TokenScope.ALL, now, expires_at=expires)
        before = len(looks)
        await asyncio.sleep(HOUR + 1)
        stay.expiring.close()
        return before, len(looks)

    assert run_virtually(story()) == (0, 1)


async def test_a_server_sends_those_out_whose_token_expires(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_server(tmp_path, nodes=1, clock=clock) as server:
        assert server.app.leader is not None
        _, secret = await server.app.leader.directory.create_token(
            "admin", TokenScope.ALL, clock.now(), expires_at=clock.now() + 0.05
        )
        async with Client(replace(server.profile, token=secret)) as client:
            watch = client.tasks.watch()
            await anext(watch)
            clock.advance(0.05)
            with pytest.raises(HaiError, match="expired"):
                async with asyncio.timeout(60):
                    await anext(watch)

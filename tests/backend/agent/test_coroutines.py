"""If a coroutine of the agent ends unexpectedly, the agent fails and reports which coroutine it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from hai_backend.agent.coroutines import Coroutines, wait_out
from tests.support.virtual_time import run_virtually


async def returns() -> None:
    await asyncio.sleep(1)


async def raises() -> None:
    raise ValueError("a bug")


async def cancelled_from_within() -> None:
    """Raise CancelledError although nobody has cancelled the task, as if a gRPC call that it reads was cancelled."""
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def for_ever() -> None:
    await asyncio.Event().wait()


def agent(
    begin: Callable[[Coroutines], Any], then: Callable[[], Awaitable[Any]] = for_ever
) -> None:
    """Run an agent with one coroutine until `then` returns."""

    async def story() -> None:
        coroutines = Coroutines()
        async with asyncio.TaskGroup() as group:
            coroutines.open(group)
            coroutines.keep_running("another part", for_ever())
            begin(coroutines)
            await then()
            coroutines.close()

    run_virtually(story())


def keeps(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[Coroutines], Any]:
    return lambda coroutines: coroutines.keep_running("the heart", work())


def begins(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[Coroutines], Any]:
    return lambda coroutines: coroutines.start("a hand", work())


def callback(action: Callable[[], Any]) -> Callable[[Coroutines], Any]:
    return lambda coroutines: asyncio.get_running_loop().call_later(1.0, action)


def _bug() -> None:
    """Fail in a module of the platform."""
    Coroutines().keep_running("a part before there is a group", None)  # type: ignore[arg-type]


FAILS = {
    "a lasting part returns": (keeps(returns), "UnexpectedEnd: the heart has ended"),
    "a lasting part raises": (keeps(raises), "ValueError: a bug"),
    "a lasting part is cancelled from within": (
        keeps(cancelled_from_within),
        "UnexpectedEnd: the heart was cancelled",
    ),
    "a lasting part is cancelled": (
        keeps(cancels_itself),
        "UnexpectedEnd: the heart was cancelled",
    ),
    "other work raises": (begins(raises), "ValueError: a bug"),
    "other work is cancelled from within": (
        begins(cancelled_from_within),
        "UnexpectedEnd: a hand was cancelled from within",
    ),
    "a callback of ours raises": (callback(_bug), "AssertionError: "),
}


@pytest.mark.parametrize(
    ("begin", "why"), [pytest.param(*case, id=name) for name, case in FAILS.items()]
)
def test_the_agent_fails(begin: Callable[[Coroutines], Any], why: str) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        agent(begin)
    error = raised.value.exceptions[0]
    assert f"{type(error).__name__}: {error}" == why


def test_other_work_may_end_and_its_owner_may_cancel_it() -> None:
    def begin(coroutines: Coroutines) -> None:
        coroutines.start("short", returns())
        coroutines.start("cancelled", for_ever()).cancel()

    agent(begin, lambda: asyncio.sleep(5))


def test_the_failure_of_a_library_is_not_ours(caplog: pytest.LogCaptureFixture) -> None:
    agent(callback(lambda: [].pop()), lambda: asyncio.sleep(5))
    assert "pop from empty list" in caplog.text


def test_an_agent_that_is_over_cancels_its_parts() -> None:
    ended = []

    async def notices() -> None:
        try:
            await for_ever()
        finally:
            ended.append(True)

    agent(begins(notices), lambda: asyncio.sleep(1))
    assert ended == [True]


def test_wait_out_waits_for_what_is_prolonged_meanwhile() -> None:
    async def story() -> float:
        clock = asyncio.get_running_loop().time
        deadlines = [clock() + 10.0]
        asyncio.get_running_loop().call_later(9.0, deadlines.append, clock() + 25.0)
        began = clock()
        await wait_out(lambda: deadlines[-1] - clock())
        return clock() - began

    assert run_virtually(story()) == pytest.approx(25.0)

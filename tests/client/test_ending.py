"""What a call ended with while it was being written to: grpc.aio forgets it, we do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, ClassVar

import grpc
import pytest
from grpc import StatusCode, aio

from hai.client.connection import Connection
from hai.client.ending import Ending
from hai.client.errors import Denied
from hai.client.profile import Profile

CORE = (StatusCode.INTERNAL, "Internal error from Core")
DENIED = (StatusCode.PERMISSION_DENIED, "not yours")
AWAY = (StatusCode.UNAVAILABLE, "Socket closed")
OK = (StatusCode.OK, "")


class Calls(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A server that reads nothing of what it is sent."""

    quiet: ClassVar[asyncio.Event]  # the client says nothing more

    def __init__(self, channel: aio.Channel | None = None) -> None:
        if channel is not None:
            self.refuse = channel.stream_stream("/test/refuse")
            self.answer = channel.stream_stream("/test/answer")
            self.refuse_quiet = channel.stream_stream("/test/refuse_quiet")

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        behaviour = {"refuse": _refuse, "answer": _answer, "refuse_quiet": _refuse_quiet}
        return grpc.stream_stream_rpc_method_handler(behaviour[details.method.rpartition("/")[2]])


async def _refuse(requests: AsyncIterator[bytes], context: aio.ServicerContext[Any, Any]) -> None:
    await context.abort(StatusCode.PERMISSION_DENIED, "not yours")


async def _answer(requests: AsyncIterator[bytes], context: aio.ServicerContext[Any, Any]) -> None:
    await context.write(b"this")
    await context.write(b"and that")


async def _refuse_quiet(
    requests: AsyncIterator[bytes], context: aio.ServicerContext[Any, Any]
) -> None:
    await Calls.quiet.wait()
    await _refuse(requests, context)


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    Calls.quiet = asyncio.Event()
    server = aio.server()
    server.add_generic_rpc_handlers((Calls(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = Connection(Profile("test", f"127.0.0.1:{port}", "secret"))
    yield connection
    await connection.close()
    await server.stop(0)


async def much() -> AsyncGenerator[bytes, None]:
    for _ in range(64):
        yield bytes(65536)


async def test_who_is_refused_while_it_still_says_much_hears_why(connection: Connection) -> None:
    stub = connection.stub(Calls)
    for _ in range(20):  # nine of ten were told of a lost connection
        with pytest.raises(Denied, match=r"^not yours$"):
            await anext(connection.duplex(stub.refuse, much()))


async def test_who_is_answered_while_it_still_says_much_hears_all(connection: Connection) -> None:
    stub = connection.stub(Calls)
    for _ in range(20):
        heard = [answer async for answer in connection.duplex(stub.answer, much())]
        assert heard == [b"this", b"and that"]


async def test_nothing_waits_to_be_said_to_a_call_that_has_ended(connection: Connection) -> None:
    """As in a tunnel, whose user says nothing for a while."""
    requests = _one_and_then()
    with pytest.raises(Denied):
        await anext(connection.duplex(connection.stub(Calls).refuse_quiet, requests))
    assert requests.ag_frame is None


async def _one_and_then() -> AsyncGenerator[bytes, None]:
    yield b""
    Calls.quiet.set()
    await asyncio.Event().wait()


async def test_who_cannot_say_it_all_hears_why(connection: Connection) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        await anext(connection.duplex(connection.stub(Calls).refuse_quiet, _lacking()))


async def _lacking() -> AsyncGenerator[bytes, None]:
    yield b""
    raise FileNotFoundError("no such file")


class Scripted:
    """A call whose status is set by hand, as often as one likes."""

    def __init__(self) -> None:
        self._told: list[Callable[[Scripted], None]] = []
        self._status = OK

    def add_done_callback(self, callback: Callable[[Scripted], None]) -> None:
        self._told.append(callback)

    def end(self, status: tuple[StatusCode, str]) -> None:
        self._status = status
        for callback in self._told:
            callback(self)

    async def code(self) -> StatusCode:
        return self._status[0]

    async def details(self) -> str:
        return self._status[1]

    async def debug_error_string(self) -> str:
        return ""

    async def initial_metadata(self) -> aio.Metadata:
        return aio.Metadata()

    trailing_metadata = initial_metadata


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([DENIED], [], DENIED, id="a refusal"),
        pytest.param([DENIED, CORE], [], DENIED, id="a write fails behind it"),
        pytest.param([CORE], [DENIED], DENIED, id="a write fails before it"),
        pytest.param([OK, CORE], [], OK, id="a write fails behind the end"),
        pytest.param([CORE], [AWAY], AWAY, id="a line that breaks"),
        pytest.param([CORE], [], CORE, id="nothing but the write"),
    ],
)
async def test_the_words_of_the_server_count(
    before: list[Any], after: list[Any], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai.client.ending._PATIENCE_SECONDS", 5.0 if after else 0.0)
    call = Scripted()
    ending = Ending(call)
    for status in before:
        call.end(status)
    for status in after:
        asyncio.get_running_loop().call_later(0.0, call.end, status)
    told = await ending.status()
    assert (told.code(), told.details()) == expected

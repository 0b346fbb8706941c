"""Tests that a streaming call always ends with an AioRpcError, unless the task itself is being cancelled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, ClassVar

import grpc
import pytest
from grpc import StatusCode, aio

from hai.client.connection.stream_call import StreamCall
from hai.client.connection.transport import Connection
from hai.client.errors import Denied
from hai.client.profile import Profile

CORE = (StatusCode.INTERNAL, "Internal error from Core")
DENIED = (StatusCode.PERMISSION_DENIED, "not yours")
AWAY = (StatusCode.UNAVAILABLE, "Socket closed")
OK = (StatusCode.OK, "")
TIRED = (StatusCode.CANCELLED, "tired")

LARGE = bytes(1024 * 1024)  # a few of these fill every flow-control window


class Calls(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A service that reads none of its requests."""

    quiet: ClassVar[asyncio.Event]  # the client sends nothing more

    def __init__(self, channel: aio.Channel | None = None) -> None:
        if channel is not None:
            self.refuse = channel.stream_stream("/test/refuse")
            self.answer = channel.stream_stream("/test/answer")
            self.refuse_quiet = channel.stream_stream("/test/refuse_quiet")

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        behaviour = {
            "refuse": _refuse,
            "answer": _answer,
            "refuse_quiet": _refuse_quiet,
            "one_answer": _one_answer,
        }
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


async def _one_answer(
    requests: AsyncIterator[bytes], context: aio.ServicerContext[Any, Any]
) -> None:
    await context.write(b"one")
    await asyncio.Event().wait()


class Server:
    """Serves `Calls` in this process, with a channel to it."""

    def __init__(self) -> None:
        self.server = aio.server()
        self.server.add_generic_rpc_handlers((Calls(),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.channel = aio.insecure_channel(f"127.0.0.1:{self.port}")

    def call(self, name: str) -> Any:
        return self.channel.stream_stream(f"/test/{name}")()

    def open(self, name: str) -> StreamCall[bytes, bytes]:
        return StreamCall(self.call(name))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    Calls.quiet = asyncio.Event()
    server = Server()
    await server.server.start()
    yield server
    await server.channel.close()
    await server.server.stop(0)


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    connection = Connection(Profile("test", f"127.0.0.1:{server.port}", "secret"))
    yield connection
    await connection.close()


@pytest.fixture
async def silent() -> AsyncIterator[Server]:
    """Run a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server()
        server.channel = aio.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}")
        yield server
        await server.channel.close()


async def end_of(work: Any) -> tuple[StatusCode, str | None]:
    """Return how a call ends. It runs in a separate asyncio task, so that a CancelledError is recognized."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=10)
    assert task.done(), "it hangs"
    assert not task.cancelled(), "nobody cancelled the task, only the call"
    error = task.exception()
    assert isinstance(error, aio.AioRpcError), error
    return error.code(), error.details()


async def read_all(call: Any) -> list[bytes]:
    return [answer async for answer in call]


async def write_for_ever(call: Any) -> None:
    while True:
        await call.write(LARGE)


async def settled() -> None:
    """Wait until reads and writes are blocked."""
    await asyncio.sleep(0.1)


# the behaviour of gRPC itself


async def test_grpc_raises_cancelled_error_in_the_reader_of_a_cancelled_call(
    server: Server,
) -> None:
    """This behaviour is the reason for StreamCall. If the test fails, gRPC has changed, and StreamCall can be
    simplified.
    """
    call = server.call("one_answer")
    reading = asyncio.ensure_future(read_all(call))
    await settled()
    call.cancel()
    await asyncio.wait([reading], timeout=10)
    assert reading.cancelled()


async def test_grpc_blocks_the_writer_of_a_call_cancelled_before_connecting(
    silent: Server,
) -> None:
    call = silent.call("one_answer")
    writing = asyncio.ensure_future(call.write(b"x"))
    await settled()
    call.cancel()
    await asyncio.wait([writing], timeout=0.2)
    assert not writing.done()
    writing.cancel()


# calls that the server ends


async def test_all_answers_then_ok(server: Server) -> None:
    stream = server.open("answer")
    assert await read_all(stream) == [b"this", b"and that"]
    assert (await stream.status()).code() is StatusCode.OK
    assert await read_all(stream) == []
    assert await stream.read() is None
    assert not stream.cancelled


async def test_read_gives_one_answer_at_a_time(server: Server) -> None:
    stream = server.open("answer")
    assert [await stream.read() for _ in range(3)] == [b"this", b"and that", None]


async def test_reader_and_writer_receive_a_refusal_each_time(server: Server) -> None:
    stream = server.open("refuse")
    for _ in range(2):
        assert await end_of(read_all(stream)) == DENIED
        assert await end_of(stream.read()) == DENIED
        assert await end_of(stream.write(b"x")) == DENIED
    await stream.done_writing()
    stream.cancel("too late")
    assert not stream.cancelled
    assert await end_of(read_all(stream)) == DENIED


async def test_a_refusal_ends_a_blocked_writer(server: Server) -> None:
    stream = server.open("refuse_quiet")
    writing = asyncio.ensure_future(write_for_ever(stream))
    await settled()
    Calls.quiet.set()
    assert await end_of(writing) == DENIED
    assert await end_of(read_all(stream)) == DENIED


async def test_a_write_after_the_end_raises_the_status_ok(server: Server) -> None:
    stream = server.open("answer")
    await read_all(stream)
    assert (await end_of(stream.write(b"x")))[0] is StatusCode.OK


async def test_writing_after_done_writing_raises_invalid_state(server: Server) -> None:
    stream = server.open("one_answer")
    await stream.done_writing()
    with pytest.raises(asyncio.InvalidStateError):
        await stream.write(b"x")
    stream.cancel()


async def test_a_stopping_server_ends_reader_and_writer(server: Server) -> None:
    stream = server.open("one_answer")
    work = [asyncio.ensure_future(read_all(stream)), asyncio.ensure_future(write_for_ever(stream))]
    await settled()
    await server.server.stop(0)
    codes = [(await end_of(each))[0] for each in work]
    assert set(codes) <= {StatusCode.UNAVAILABLE, StatusCode.CANCELLED}
    assert len(set(codes)) == 1


async def test_a_lost_connection_ends_reader_and_writer(silent: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = aio.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}")
        stream = StreamCall(channel.stream_stream("/test/any")())
        work = [asyncio.ensure_future(read_all(stream)), asyncio.ensure_future(stream.write(b"x"))]
        await settled()
    for each in work:
        assert (await end_of(each))[0] is StatusCode.UNAVAILABLE
    await channel.close()


# calls that the client ends


async def test_a_cancelled_call_does_not_raise_cancelled_error(server: Server) -> None:
    stream = server.open("one_answer")
    reading = asyncio.ensure_future(read_all(stream))
    await settled()
    stream.cancel("tired")
    assert await end_of(reading) == TIRED
    assert stream.cancelled
    assert await end_of(read_all(stream)) == TIRED
    assert (await stream.status()).code() is StatusCode.CANCELLED


async def test_cancel_ends_a_blocked_reader_and_writer(server: Server) -> None:
    stream = server.open("one_answer")
    work = [asyncio.ensure_future(read_all(stream)), asyncio.ensure_future(write_for_ever(stream))]
    await settled()
    stream.cancel("tired")
    assert [await end_of(each) for each in work] == [TIRED, TIRED]
    assert await end_of(stream.write(b"x")) == TIRED
    await stream.done_writing()


@pytest.mark.parametrize("name", ["read", "write"])
async def test_a_call_can_be_cancelled_before_it_is_connected(silent: Server, name: str) -> None:
    stream = silent.open("one_answer")
    work = asyncio.ensure_future(stream.read() if name == "read" else stream.write(b"x"))
    await settled()
    stream.cancel("tired")
    assert await end_of(work) == TIRED


@pytest.mark.parametrize("name", ["read", "write"])
async def test_a_call_can_be_cancelled_at_once(server: Server, name: str) -> None:
    stream = server.open("one_answer")
    stream.cancel("tired")
    assert await end_of(stream.read() if name == "read" else stream.write(b"x")) == TIRED


async def test_a_call_can_be_cancelled_between_two_reads(server: Server) -> None:
    stream = server.open("one_answer")
    assert await stream.read() == b"one"
    stream.cancel("tired")
    assert await end_of(stream.read()) == TIRED


async def test_the_first_cancel_reason_is_reported(server: Server) -> None:
    stream = server.open("one_answer")
    stream.cancel("tired")
    stream.cancel("bored")
    assert await end_of(stream.read()) == TIRED


async def test_a_cancel_without_a_reason_has_a_default(server: Server) -> None:
    stream = server.open("one_answer")
    stream.cancel()
    assert await end_of(stream.read()) == (StatusCode.CANCELLED, "cancelled by its user")


async def test_a_closed_channel_ends_reader_and_writer(server: Server) -> None:
    stream = server.open("one_answer")
    work = [asyncio.ensure_future(read_all(stream)), asyncio.ensure_future(write_for_ever(stream))]
    await settled()
    await server.channel.close()
    for each in work:
        code, details = await end_of(each)
        assert code is StatusCode.CANCELLED
        assert "its channel was closed" in str(details)
    assert not stream.cancelled


async def test_a_call_without_requests_yields_its_answers(server: Server) -> None:
    stream = StreamCall(server.channel.unary_stream("/test/one_answer")(b""))
    assert await stream.read() == b"one"
    reading = asyncio.ensure_future(stream.read())
    await settled()
    stream.cancel("tired")
    assert await end_of(reading) == TIRED


# calls whose asyncio task ends


@pytest.mark.parametrize("work", [read_all, write_for_ever], ids=["reading", "writing"])
@pytest.mark.parametrize("where", ["server", "silent"])
async def test_a_cancelled_task_ends_its_call(
    work: Callable[[Any], Any], where: str, server: Server, silent: Server
) -> None:
    stream = {"server": server, "silent": silent}[where].open("one_answer")
    task = asyncio.ensure_future(work(stream))
    await settled()
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()
    assert (await end_of(stream.read()))[0] is StatusCode.CANCELLED


async def test_a_task_cancelled_before_its_first_step_ends_its_call(server: Server) -> None:
    stream = server.open("one_answer")

    async def read() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await stream.read()

    task = asyncio.ensure_future(read())
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()
    assert stream.done


async def test_a_task_cancelled_together_with_its_call_is_cancelled(server: Server) -> None:
    stream = server.open("one_answer")
    task = asyncio.ensure_future(read_all(stream))
    await settled()
    stream.cancel("tired")
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_a_timeout_around_a_read_raises_timeout_error(server: Server) -> None:
    stream = server.open("one_answer")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await read_all(stream)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.open("one_answer").write(100 * LARGE), 0.1)
    assert stream.done


async def test_a_cancelled_call_fails_its_task_group(server: Server) -> None:
    """The call raises an error, which ends the siblings. A CancelledError would silently end only this part."""
    stream, waiting = server.open("one_answer"), asyncio.ensure_future(asyncio.Event().wait())

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(read_all(stream))
            asyncio.get_running_loop().call_later(0.1, stream.cancel, "tired")
            await waiting

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert caught.group_contains(aio.AioRpcError)
    assert waiting.cancelled()


async def test_a_failing_task_group_cancels_its_reader(server: Server) -> None:
    stream, reading = server.open("one_answer"), list[asyncio.Task[Any]]()

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            reading.append(group.create_task(read_all(stream)))
            await settled()
            raise ValueError

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert not caught.group_contains(aio.AioRpcError)
    assert reading[0].cancelled()
    assert stream.done


# writes at the end of a call


async def much() -> AsyncGenerator[bytes, None]:
    for _ in range(64):
        yield bytes(65536)


async def test_a_writer_with_many_requests_receives_a_refusal(connection: Connection) -> None:
    stub = connection.stub(Calls)
    for _ in range(20):  # without StreamCall, nine of ten reported a lost connection
        with pytest.raises(Denied, match=r"^not yours$"):
            await anext(connection.duplex(stub.refuse, much()))


async def test_a_writer_with_many_requests_receives_all_answers(connection: Connection) -> None:
    stub = connection.stub(Calls)
    for _ in range(20):
        received = [answer async for answer in connection.duplex(stub.answer, much())]
        assert received == [b"this", b"and that"]


async def test_no_request_waits_for_a_call_that_has_ended(connection: Connection) -> None:
    """An example is a tunnel whose user sends nothing for a while."""
    requests = _one_and_then()
    with pytest.raises(Denied):
        await anext(connection.duplex(connection.stub(Calls).refuse_quiet, requests))
    assert getattr(requests, "ag_frame") is None  # noqa: B009


async def _one_and_then() -> AsyncGenerator[bytes, None]:
    yield b""
    Calls.quiet.set()
    await asyncio.Event().wait()


async def test_an_error_of_the_requests_is_raised_to_the_reader(connection: Connection) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        await anext(connection.duplex(connection.stub(Calls).refuse_quiet, _lacking()))


async def _lacking() -> AsyncGenerator[bytes, None]:
    yield b""
    raise FileNotFoundError("no such file")


class Scripted:
    """A call whose status a test sets, any number of times."""

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
async def test_the_status_of_the_server_takes_precedence(
    before: list[Any], after: list[Any], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai.client.connection.stream_call._STATUS_SECONDS", 5.0 if after else 0.0)
    call = Scripted()
    stream: StreamCall[Any, Any] = StreamCall(call)
    for status in before:
        call.end(status)
    for status in after:
        asyncio.get_running_loop().call_later(0.0, call.end, status)
    reported = await stream.status()
    assert (reported.code(), reported.details()) == expected

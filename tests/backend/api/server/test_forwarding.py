"""A server that does not lead forwards every call to the leader, or refuses the call with a clear message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hai.client.connection.stream_call import StreamCall
from hai.v1 import task_service_pb2 as pb
from hai.v1.task_service_pb2_grpc import TaskServiceStub
from hai_backend.api.assemble import build_call_guard, build_services
from hai_backend.api.server.forwarding import HOPS_KEY, LeaderRoute
from hai_backend.api.server.router import LocalRoute, RefusalRoute, Router
from hai_backend.api.server.server import Endpoint, build_server, collect_handlers
from hai_backend.domain.errors import NoLeader

C = grpc.StatusCode
DETAILS = "grpc-status-details-bin"


class Leader(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers every method below /hai.test/ and records what it received."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.left: float | None = None
        self.cancelled = asyncio.Event()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        behaviour = getattr(self, details.method.rpartition("/")[2])
        return grpc.stream_stream_rpc_method_handler(behaviour)

    async def echo(self, requests: AsyncIterator[bytes], context: Any) -> None:
        self.metadata = dict(context.invocation_metadata())
        self.left = context.time_remaining()
        await context.send_initial_metadata((("first", "1"),))
        async for request in requests:
            await context.write(request)
        context.set_trailing_metadata((("last", "9"), ("raw-bin", b"\xff\x00")))

    async def refuse(self, requests: AsyncIterator[bytes], context: Any) -> None:
        trailer = ((DETAILS, b"\x01\x02"), ("more", "x"))
        await anext(requests)  # real services read the first request, too
        await context.abort(C.FAILED_PRECONDITION, "not so", trailer)

    async def refuse_at_once(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await context.abort(C.PERMISSION_DENIED, "not yours", ((DETAILS, b"\x01\x02"),))

    async def answer_at_once(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(b"this")
        await context.write(b"and that")

    async def wait(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(b"begun")
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


@asynccontextmanager
async def follower(leader: str) -> AsyncIterator[tuple[str, Router, LeaderRoute]]:
    router = Router()
    listening = build_server(Endpoint("127.0.0.1:0"), router)
    await listening.start()
    elsewhere = LeaderRoute(leader, None)
    router.route_to(elsewhere)
    yield listening.address, router, elsewhere
    await elsewhere.close()
    await listening.stop(0)


@pytest.fixture
async def leader() -> AsyncIterator[tuple[Leader, aio.Server, str]]:
    server, made = aio.server(), Leader()
    server.add_generic_rpc_handlers((made,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield made, server, f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def passed(leader: Any) -> AsyncIterator[tuple[Leader, aio.Channel, LeaderRoute]]:
    async with follower(leader[2]) as (address, _, way), aio.insecure_channel(address) as channel:
        yield leader[0], channel, way


def refused(error: aio.AioRpcError) -> tuple[C, str, float]:
    """Return the code, the reason, and the seconds after which to retry."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata() or ())[DETAILS])
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    status.details[0].Unpack(info)
    status.details[1].Unpack(retry)
    return error.code(), info.reason, retry.retry_delay.seconds


async def test_stream_is_forwarded_with_metadata_and_trailers(passed: Any) -> None:
    made, channel, _ = passed
    sent = [b"", b"\x00\xff" * 100, b"x" * 3_000_000]
    call = channel.stream_stream("/hai.test/echo")(
        iter(sent), timeout=60, metadata=(("authorization", "Bearer s"), ("k-bin", b"\x80"))
    )
    assert [answer async for answer in call] == sent
    assert (made.metadata["authorization"], made.metadata["k-bin"]) == ("Bearer s", b"\x80")
    assert made.metadata[HOPS_KEY] == "1"
    assert made.left is not None
    assert 30 < made.left < 70  # gRPC rounds the deadline
    assert dict(await call.initial_metadata())["first"] == "1"
    trailer = dict(await call.trailing_metadata())
    assert (trailer["last"], trailer["raw-bin"]) == ("9", b"\xff\x00")


async def test_unary_call_is_forwarded(passed: Any) -> None:
    _, channel, _ = passed
    assert await channel.unary_unary("/hai.test/echo")(b"abc", timeout=10) == b"abc"


async def test_refusal_is_forwarded_with_its_details(passed: Any) -> None:
    _, channel, _ = passed
    with pytest.raises(aio.AioRpcError, match="not so") as caught:
        await channel.unary_unary("/hai.test/refuse")(b"", timeout=10)
    assert caught.value.code() is C.FAILED_PRECONDITION
    trailer = dict(caught.value.trailing_metadata() or ())
    assert (trailer[DETAILS], trailer["more"]) == (b"\x01\x02", "x")


async def test_early_response_is_forwarded_while_requests_are_still_sent(
    passed: Any,
) -> None:
    _, channel, _ = passed
    much = [bytes(65536)] * 64
    for _ in range(20):
        call = channel.stream_stream("/hai.test/refuse_at_once")(iter(much), timeout=10)
        told = await _heard(call)
        assert (told.code(), told.details()) == (C.PERMISSION_DENIED, "not yours")
        assert dict(told.trailing_metadata() or ())[DETAILS] == b"\x01\x02"
        call = channel.stream_stream("/hai.test/answer_at_once")(iter(much), timeout=10)
        assert (await _heard(call, b"this", b"and that")).code() is C.OK


async def _heard(call: Any, *answers: bytes) -> aio.AioRpcError:
    stream, heard = StreamCall[Any, Any](call), []
    with suppress(aio.AioRpcError):
        async for answer in stream:
            heard.append(answer)  # noqa: PERF401 - keeps responses before a failure
    assert tuple(heard) == answers
    return await stream.status()


@pytest.mark.parametrize("how", ["cancelled", "late"])
async def test_cancellation_by_the_caller_reaches_the_leader(passed: Any, how: str) -> None:
    made, channel, _ = passed
    timeout = 0.2 if how == "late" else None
    call = channel.unary_stream("/hai.test/wait")(b"", timeout=timeout)
    assert await call.read() == b"begun"
    if how == "cancelled":
        call.cancel()
    else:
        with pytest.raises(aio.AioRpcError, match="Deadline"):
            await call.read()
    async with asyncio.timeout(5):
        await made.cancelled.wait()


@pytest.mark.parametrize("how", ["leader", "role"])
async def test_streams_end_as_unavailable_when_the_leader_changes(
    passed: Any, leader: Any, how: str
) -> None:
    _, channel, way = passed
    call = channel.unary_stream("/hai.test/wait")(b"")
    assert await call.read() == b"begun"
    await (leader[1].stop(0) if how == "leader" else way.close())
    with pytest.raises(aio.AioRpcError, match="was lost; try again") as caught:
        await call.read()
    assert refused(caught.value) == (C.UNAVAILABLE, "NO_LEADER", 1)


async def test_unreachable_leader_is_unavailable() -> None:
    async with follower("127.0.0.1:1") as (address, *_), aio.insecure_channel(address) as channel:
        with pytest.raises(aio.AioRpcError, match=r"127\.0\.0\.1:1 was lost") as caught:
            await channel.unary_unary("/hai.test/echo")(b"", timeout=10)
    assert refused(caught.value) == (C.UNAVAILABLE, "NO_LEADER", 1)


async def test_call_on_a_closed_route_is_refused_with_a_message(passed: Any) -> None:
    _, channel, way = passed
    await way.close()
    with pytest.raises(aio.AioRpcError, match="was lost; try again") as caught:
        await channel.unary_unary("/hai.test/echo")(b"", timeout=10)
    assert refused(caught.value) == (C.UNAVAILABLE, "NO_LEADER", 1)


async def test_call_does_not_circle_between_two_followers() -> None:
    async with AsyncExitStack() as stack:
        first, board, _ = await stack.enter_async_context(follower("127.0.0.1:1"))
        second, *_ = await stack.enter_async_context(follower(first))
        back = LeaderRoute(second, None)
        stack.push_async_callback(back.close)
        board.route_to(back)
        channel = await stack.enter_async_context(aio.insecure_channel(first))
        with pytest.raises(aio.AioRpcError, match="does not lead any more") as caught:
            await channel.unary_unary("/hai.test/echo")(b"", timeout=10)
    assert refused(caught.value) == (C.UNAVAILABLE, "NO_LEADER", 1)


async def test_without_a_leader_calls_are_refused_and_health_is_answered() -> None:
    async with follower("127.0.0.1:1") as (address, board, _):
        board.route_to(RefusalRoute())
        async with aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(aio.AioRpcError, match="no server leads just now") as caught:
                await channel.unary_unary("/hai.v1.TaskService/GetTask")(b"", timeout=10)
    assert refused(caught.value) == (C.UNAVAILABLE, "NO_LEADER", 1)


async def test_real_call_through_a_follower(platform: Any) -> None:
    token = await platform.token("ada")
    async with (
        follower(platform.service.address) as (address, *_),
        aio.insecure_channel(address) as channel,
    ):
        ask = channel.unary_unary("/hai.v1.UserService/WhoAmI")
        assert b"ada" in await ask(b"", metadata=(("authorization", f"Bearer {token}"),))
        with pytest.raises(aio.AioRpcError) as caught:
            await ask(b"")
    assert caught.value.code() is C.UNAUTHENTICATED


async def test_streams_end_with_the_leader_term_and_a_server_that_slept_refuses_calls(
    platform: Any,
) -> None:
    parts, fresh = platform.api_deps(), [True]
    gate = build_call_guard(parts)
    metadata = (("authorization", f"Bearer {await platform.token('ada')}"),)
    async with (
        follower("127.0.0.1:1") as (address, board, _),
        aio.insecure_channel(address) as channel,
    ):
        board.route_to(LocalRoute(gate, collect_handlers(build_services(parts)), lambda: fresh[0]))
        stub = TaskServiceStub(channel)
        watching = stub.WatchTasks(pb.WatchTasksRequest(), metadata=metadata)
        await watching.read()
        waiting = asyncio.ensure_future(watching.read())
        await stub.ListTasks(pb.ListTasksRequest(), metadata=metadata)  # the stream is waiting now
        await gate.close(NoLeader("this server is leaving; ask again"), 0.1)
        with pytest.raises(aio.AioRpcError, match="is leaving") as caught:
            await waiting
        assert refused(caught.value) == (C.UNAVAILABLE, "NO_LEADER", 1)
        fresh[0] = False
        with pytest.raises(aio.AioRpcError, match="was asleep") as caught:
            await stub.ListTasks(pb.ListTasksRequest(), metadata=metadata)
        assert refused(caught.value) == (C.UNAVAILABLE, "NO_LEADER", 1)

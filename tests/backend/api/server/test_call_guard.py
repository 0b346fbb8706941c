"""The call guard on a real server: hostile input, limits, audit rows, and changes whose caller hung up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from hai.v1 import (
    container_service_pb2,
    server_service_pb2,
    user_pb2,
    user_service_pb2,
    workspace_service_pb2,
)
from hai.v1 import task_service_pb2 as pb
from hai_backend.api.assemble import build_call_guard, serve
from hai_backend.api.audit.rows import describe_request
from hai_backend.api.request.limits import CallLimits
from hai_backend.api.server.call_limits import CallLimiter
from hai_backend.api.server.server import Endpoint
from hai_backend.domain.accounts.user import Role, TokenScope, User
from hai_backend.domain.errors import Exhausted, Invalid, Unavailable

C = grpc.StatusCode


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param((), id="nothing"),
        pytest.param((("authorization", ""),), id="empty"),
        pytest.param((("authorization", "Bearer"),), id="no token"),
        pytest.param((("authorization", "Bearer hai_wrong"),), id="wrong"),
        pytest.param((("authorization", "Bearer " + "x" * 4000),), id="long"),
        pytest.param((("authorization", "Bearer ' OR 1=1 --"),), id="sql"),
        pytest.param((("authorization-bin", b"\xff\x00"),), id="binary"),
    ],
)
async def test_calls_without_a_valid_token_are_refused(platform: Any, metadata: Any) -> None:
    call = platform.with_token(None).channel.unary_unary("/hai.v1.UserService/WhoAmI")
    with pytest.raises(aio.AioRpcError) as caught:
        await call(b"", metadata=metadata, timeout=10)
    assert caught.value.code() is C.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("method", "body", "code"),
    [
        pytest.param(
            "/hai.v1.TaskService/GetTask", b"\xff\xff\xff", C.INVALID_ARGUMENT, id="no message"
        ),
        pytest.param(
            "/hai.v1.TaskService/StopTask", b"\xff\xff\xff", C.INVALID_ARGUMENT, id="no change"
        ),
        pytest.param("/hai.v1.TaskService/DropTables", b"", C.UNIMPLEMENTED, id="no method"),
        pytest.param("/hai.v2.TaskService/GetTask", b"", C.UNIMPLEMENTED, id="no service"),
        pytest.param(
            "/hai.v1.AgentService/Attach", b"", C.UNAUTHENTICATED, id="an agent that says nothing"
        ),
        pytest.param(
            "/hai.v1.TaskService/CreateTask",
            b"\0" * (5 << 20),
            C.RESOURCE_EXHAUSTED,
            id="too large",
        ),
    ],
)
async def test_undecodable_request_is_refused_and_the_server_continues(
    platform: Any, method: str, body: bytes, code: C
) -> None:
    token = await platform.token("ada")
    channel = platform.with_token(token).channel
    metadata = (("authorization", f"Bearer {token}"),)
    with pytest.raises(aio.AioRpcError) as caught:
        await channel.unary_unary(method)(body, metadata=metadata, timeout=10)
    assert caught.value.code() is code
    await platform.with_token(token).users.WhoAmI(user_service_pb2.WhoAmIRequest())


@pytest.mark.parametrize(
    "method", ["AgentService/Attach", "TunnelService/OpenTunnel", "WorkspaceService/PushTree"]
)
async def test_undecodable_message_in_a_stream_is_refused_without_an_incident(
    platform: Any, method: str
) -> None:
    token = await platform.token("ada")
    call = platform.with_token(token).channel.stream_stream(f"/hai.v1.{method}")(
        metadata=(("authorization", f"Bearer {token}"),), timeout=10
    )
    await call.write(b"\xff\xff\xff")
    with pytest.raises(aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is C.INVALID_ARGUMENT
    assert "cannot be read" in (caught.value.details() or "")


async def test_undecodable_request_without_a_token_is_unauthenticated(platform: Any) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await platform.with_token(None).channel.unary_unary("/hai.v1.TaskService/GetTask")(
            b"\xff", timeout=10
        )
    assert caught.value.code() is C.UNAUTHENTICATED


A_FIELD_OF_TOMORROW = b"\xf8\x07\x01"  # number 127


def with_fields_of_tomorrow(message: Any, *inner: Any) -> Any:
    for each in (message, *inner):
        each.MergeFromString(A_FIELD_OF_TOMORROW)
    return message


@pytest.mark.parametrize("method", ["CreateTask", "DryRunTask"])
async def test_changes_with_unknown_fields_are_refused(
    platform: Any, make_spec: Any, expect_refusal: Any, method: str
) -> None:
    ada, spec = await platform.caller("ada"), make_spec("one")
    spec.options.after.add(task=1)
    spec.services.add(name="web", port=80)
    with_fields_of_tomorrow(spec, spec.options.after[0], spec.services[0])
    async with expect_refusal() as why:
        await getattr(ada.tasks, method)(getattr(pb, f"{method}Request")(spec=spec))
    assert (why[0].code, why[0].reason) == (C.INVALID_ARGUMENT, "UNKNOWN_FIELD")
    names = [field for field, words in why[0].violations if "it is older than" in words]
    assert names == [
        f"hai.v1.{message}.127" for message in ("AfterSpec", "ServiceSpec", "TaskSpec")
    ]
    assert (await ada.tasks.ListTasks(pb.ListTasksRequest())).tasks == []


@pytest.mark.parametrize("action", [0, 99])
async def test_unknown_service_actions_are_refused(
    platform: Any, make_spec: Any, expect_refusal: Any, action: int
) -> None:
    ada = await platform.caller("ada")
    task = await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("one")))
    asked = container_service_pb2.ControlServiceRequest(id=task.id, service="web", action=action)  # type: ignore[arg-type]
    async with expect_refusal() as why:
        await ada.containers.ControlService(asked)
    assert why[0].violations == (("action", "must be start, stop or restart"),)


async def test_reads_with_unknown_fields_are_answered(platform: Any) -> None:
    ada = await platform.caller("ada")
    await ada.tasks.ListTasks(with_fields_of_tomorrow(pb.ListTasksRequest()))
    await ada.users.WhoAmI(with_fields_of_tomorrow(user_service_pb2.WhoAmIRequest()))


async def test_millions_of_unknown_fields_are_refused_without_a_list(
    platform: Any, expect_refusal: Any
) -> None:
    ada, request = await platform.caller("ada"), pb.StopTaskRequest(id=1)
    request.MergeFromString(A_FIELD_OF_TOMORROW * 100_000)
    async with expect_refusal() as why:
        await ada.tasks.StopTask(request)
    assert [field for field, _ in why[0].violations] == ["request"]


async def test_server_info_needs_no_token(platform: Any) -> None:
    nobody = platform.with_token(None)
    info = await nobody.server.GetServerInfo(server_service_pb2.GetServerInfoRequest())
    assert (info.protocol, info.launcher) == ("hai.v1", "process")
    health = health_pb2_grpc.HealthStub(nobody.channel)
    for service in ("", "hai.v1.TaskService"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watch = health.Watch(health_pb2.HealthCheckRequest(service=""))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


async def test_reflection_lists_the_services(platform: Any) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(platform.with_token(None).channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    await call.done_writing()
    names = {service.name for service in answer.list_services_response.service}
    assert {"hai.v1.TaskService", "hai.v1.ServerService", "grpc.health.v1.Health"} <= names
    call.cancel()


def test_audit_row_has_no_lease_token() -> None:
    request = workspace_service_pb2.RestoreRevisionRequest(
        name="bert", revision=3, lease_token="hunter2"
    )
    assert describe_request(request) == "name='bert' revision=3"


async def test_every_change_is_audited_without_secrets(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    ada = await platform.caller("ada")
    spec = make_spec("one")
    spec.spec.environments["PASSWORD"] = "hunter2"
    created = await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=spec))
    await ada.tasks.GetTask(pb.GetTaskRequest(id=created.id))
    await ada.tasks.SuspendTask(pb.SuspendTaskRequest(id=created.id, hold=True))
    token = await ada.users.CreateToken(
        user_service_pb2.CreateTokenRequest(scope=2, description="ci")
    )
    async with expect_refusal():
        await ada.users.CreateUser(user_service_pb2.CreateUserRequest())
    await platform.service.stop(0)
    rows = {(r.actor, r.method, r.resource, r.code) for r in (await platform.store.audit()).rows}
    assert rows == {  # the timeline of the task names its creator
        ("ada", "SuspendTask", "1", "OK"),
        ("ada", "CreateToken", str(token.id), "OK"),
        ("ada", "CreateUser", "", "PERMISSION_DENIED"),
    }
    text = str((await platform.store.audit()).rows)
    assert "hunter2" not in text
    assert token.secret not in text
    assert "hold=True" in text


@pytest.fixture
def no_room_for_audit(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, before the gate is built."""

    async def full(*_: Any) -> None:
        raise Unavailable("writing hai.db failed: database or disk is full")

    monkeypatch.setattr(type(store), "add_audit", full)


async def test_refusal_reaches_the_caller_even_if_its_audit_row_cannot_be_stored(
    no_room_for_audit: None, platform: Any
) -> None:
    ada = await platform.caller("ada")
    with pytest.raises(aio.AioRpcError) as caught:
        await ada.users.CreateUser(user_service_pb2.CreateUserRequest())
    assert caught.value.code() is C.PERMISSION_DENIED


async def test_change_goes_on_when_its_caller_hangs_up(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    save = platform.store.save_user

    async def slow(user: User) -> None:
        reached.set()
        await go_on.wait()
        await save(user)
        done.set()

    monkeypatch.setattr(platform.store, "save_user", slow)
    root = await platform.caller("root")
    request = user_service_pb2.CreateUserRequest()
    request.user.name, request.user.role, request.user.active = "zoe", 1, True
    call = root.users.CreateUser(request)
    await reached.wait()
    call.cancel()
    go_on.set()
    await asyncio.wait_for(done.wait(), 10)
    for _ in range(10):
        await asyncio.sleep(0)
    assert platform.directory.user("zoe").name == "zoe"


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        pytest.param(Unavailable("the disk is full"), [], id="what happens is dropped"),
        pytest.param(RuntimeError("a mistake of ours"), ["call failed"], id="an incident is not"),
    ],
)
async def test_audit_row_of_an_abandoned_change_has_its_result(
    platform: Any, monkeypatch: pytest.MonkeyPatch, fails: Exception, told: list[str]
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    unheard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, why: unheard.append(why))

    async def failing(user: User) -> None:
        reached.set()
        await go_on.wait()
        raise fails

    monkeypatch.setattr(platform.store, "save_user", failing)
    root = await platform.caller("root")
    user = user_pb2.User(name="zoe", role=user_pb2.ROLE_USER, active=True)
    call = root.users.CreateUser(user_service_pb2.CreateUserRequest(user=user))
    await reached.wait()
    call.cancel()
    while not platform.calls:  # noqa: ASYNC110 - counted once the server knows that nobody waits
        await asyncio.sleep(0)
    with capture_logs() as logs:
        go_on.set()
        for _ in range(10):
            await asyncio.sleep(0)
    gc.collect()
    assert [line["event"] for line in logs] == told
    assert unheard == []


async def test_calls_are_counted_by_method_and_code(platform: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    await ada.users.WhoAmI(user_service_pb2.WhoAmIRequest())
    async with expect_refusal():
        await ada.tasks.GetTask(pb.GetTaskRequest(id=99))
    assert platform.calls == [
        ("/hai.v1.UserService/WhoAmI", "OK"),
        ("/hai.v1.TaskService/GetTask", "NOT_FOUND"),
    ]


async def revoke(platform: Any) -> None:
    await platform.directory.revoke_token(platform.directory.tokens_of("ada")[0].id)


async def deactivate(platform: Any) -> None:
    await platform.directory.update_user(replace(platform.directory.user("ada"), active=False))


async def lose_a_group(platform: Any) -> None:
    await platform.directory.update_user(replace(platform.directory.user("ada"), groups=()))


async def lose_a_role(platform: Any) -> None:
    await platform.directory.update_user(replace(platform.directory.user("ada"), role=Role.USER))


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (revoke, C.UNAUTHENTICATED),
        (deactivate, C.UNAUTHENTICATED),
        (lose_a_group, C.UNAVAILABLE),
        (lose_a_role, C.UNAVAILABLE),
    ],
)
async def test_quiet_stream_ends_when_its_user_loses_the_permission(
    platform: Any, make_spec: Any, ended: Callable[[Any], Awaitable[None]], code: grpc.StatusCode
) -> None:
    secret, other = await platform.token("ada"), await platform.caller("bob")
    ada = replace(platform.directory.user("ada"), role=Role.OPERATOR, groups=("vision",))
    await platform.directory.update_user(ada)
    watch, theirs = (
        caller.tasks.WatchTasks(pb.WatchTasksRequest())
        for caller in (platform.with_token(secret), other)
    )
    await watch.read()
    await theirs.read()
    await ended(platform)
    with pytest.raises(aio.AioRpcError) as caught:
        await asyncio.wait_for(watch.read(), 10)
    assert caught.value.code() is code
    await other.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("one")))
    await theirs.read()  # streams of others continue


async def test_token_that_expires_in_the_past_is_refused(
    platform: Any, expect_refusal: Any
) -> None:
    ada = await platform.caller("ada")
    request = user_service_pb2.CreateTokenRequest(scope=1, expire_time=Timestamp(seconds=1))
    async with expect_refusal() as why:
        await ada.users.CreateToken(request)
    assert "server's clock" in why[0].violations[0][1]


class Ticks:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_call_limit_recovers_with_time() -> None:
    ticks = Ticks()
    admission = CallLimiter(CallLimits(calls_per_second=10, calls_at_once=2), ticks)
    admission.count_call("ada")
    admission.count_call("ada")
    admission.count_call("bob")
    with pytest.raises(Exhausted, match=r"try again in 0\.1") as caught:
        admission.count_call("ada")
    ticks.now += caught.value.retry_after or 0.0
    admission.count_call("ada")


def test_streams_are_counted_while_they_are_open() -> None:
    admission = CallLimiter(CallLimits(open_streams=1), Ticks())
    two = (admission.count_stream("ada"), admission.count_stream("bob"))
    with (
        two[0],
        two[1],
        pytest.raises(Exhausted, match="close some"),
        admission.count_stream("ada"),
    ):
        pass
    with admission.count_stream("ada"):
        pass


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        pytest.param(Endpoint("0.0.0.0:0"), "plain text", id="plaintext off loopback"),
        pytest.param(Endpoint("[::]:0"), "plain text", id="plaintext on all of IPv6"),
    ],
)
async def test_invalid_endpoints_are_refused(platform: Any, endpoint: Endpoint, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        await serve(platform.api_deps(), endpoint)


async def test_second_server_on_the_port_is_an_error(platform: Any) -> None:
    with pytest.raises(Unavailable, match="the address is taken"):
        await serve(platform.api_deps(), Endpoint(platform.service.address))


async def test_plaintext_off_loopback_is_allowed_with_insecure(platform: Any) -> None:
    service = await serve(platform.api_deps(), Endpoint("0.0.0.0:0", insecure=True))
    assert service.address.startswith("0.0.0.0:")
    await service.stop(0)


async def test_refusal_of_a_narrow_token_names_the_required_scope(
    platform: Any, make_spec: Callable[..., Any], expect_refusal: Any
) -> None:
    reader = await platform.caller("ada", TokenScope.READ)
    async with expect_refusal() as why:
        await reader.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("x")))
    assert (why[0].reason, "scope SUBMIT" in why[0].message) == ("SCOPE_TOO_SMALL", True)


class TestSmallLimits:
    @pytest.fixture
    def call_limits(self) -> CallLimits:
        return replace(CallLimits(), open_streams=2, call_seconds=0.05)

    async def test_open_streams(self, platform: Any) -> None:
        ada = await platform.caller("ada")
        streams = [ada.tasks.WatchTasks(pb.WatchTasksRequest()) for _ in range(2)]
        for stream in streams:
            await stream.read()
        with pytest.raises(aio.AioRpcError) as caught:
            await ada.tasks.WatchTasks(pb.WatchTasksRequest()).read()
        assert caught.value.code() is C.RESOURCE_EXHAUSTED
        for stream in streams:
            stream.cancel()

    async def test_call_without_a_deadline_gets_one(
        self, platform: Any, expect_refusal: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def hang(query: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(platform.store, "find_tasks", hang)
        ada = await platform.caller("ada")
        async with expect_refusal() as why:
            await ada.tasks.ListTasks(pb.ListTasksRequest(), timeout=None)
        assert (why[0].code, why[0].reason) == (C.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("kind", ["unary", "stream"])
async def test_call_whose_work_is_cancelled_ends_with_an_incident(platform: Any, kind: str) -> None:
    """gRPC gives a handler that leaves as cancelled no status: its caller would wait for ever."""

    async def unary(request: bytes, context: Any) -> bytes:
        await _cancelled()
        return b""

    async def stream(request: bytes, context: Any) -> Any:
        await _cancelled()
        yield b""

    guard, server = build_call_guard(platform.api_deps()), aio.server()
    method = f"/hai.v1.TaskService/{'GetTask' if kind == 'unary' else 'WatchTasks'}"
    handler = (
        grpc.unary_unary_rpc_method_handler(unary)
        if kind == "unary"
        else grpc.unary_stream_rpc_method_handler(stream)
    )
    server.add_generic_rpc_handlers((_One(guard.wrap_handler(method, handler)),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    metadata = (("authorization", f"Bearer {await platform.token('ada')}"),)
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(method)  # a stream of one response looks the same on the wire
        with pytest.raises(aio.AioRpcError, match="incident") as caught, capture_logs():
            await call(b"", metadata=metadata, timeout=10)
    await server.stop(0)
    assert caught.value.code() is C.INTERNAL


class _One(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return self._handler


async def _cancelled() -> None:
    part = asyncio.ensure_future(asyncio.Event().wait())
    part.cancel()
    await part

"""Tests of calls to a real grpc.aio server: token, deadline, retries, errors."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from hai.client import errors
from hai.client.client import Client
from hai.client.connection.grpc_errors import to_error
from hai.client.connection.transport import ATTEMPTS, LEADERLESS_ATTEMPTS, Connection, is_loopback
from hai.client.profile import Profile
from hai.v1.server_service_pb2 import ServerInfo
from hai.v1.task_pb2 import Task
from hai.v1.task_service_pb2 import CreateTaskRequest, DryRunTaskResponse
from hai.v1.task_spec_pb2 import AfterSpec, OptionsSpec, TaskSpec


def flaky(refusal: Any, times: int, answer: Any) -> Any:
    """Return an answer that fails so many times, then succeeds."""
    left = [times]

    async def call(request: Any, context: Any) -> Any:
        if left[0]:
            left[0] -= 1
            await refusal(request, context)
        return answer

    return call


async def test_a_call_sends_the_token(scripted) -> None:
    scripted.unary["GetServerInfo"] = flaky(None, 0, ServerInfo(version="1"))
    async with Client(scripted.profile) as client:
        assert (await client.server.info()).version == "1"
    assert scripted.metadata[0]["authorization"] == "Bearer secret"


async def test_the_error_says_that_a_token_is_missing(scripted, refuse) -> None:
    scripted.unary["GetTask"] = refuse(StatusCode.UNAUTHENTICATED, "no token", "UNAUTHENTICATED")
    async with Client(replace(scripted.profile, token="")) as client:
        with pytest.raises(errors.Unauthenticated, match="there is no token for the server"):
            await client.tasks.get(7)
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Unauthenticated, match="does not accept the token"):
            await client.tasks.get(7)


async def test_a_call_with_retry_is_repeated(scripted, refuse) -> None:
    unavailable = refuse(StatusCode.UNAVAILABLE, "restarting")
    scripted.unary["GetTask"] = flaky(unavailable, 2, Task(id=7))
    async with Client(scripted.profile) as client:
        assert (await client.tasks.get(7)).id == 7
    assert len(scripted.calls) == 3


async def test_attempts_are_limited(scripted, refuse) -> None:
    scripted.unary["GetTask"] = refuse(StatusCode.UNAVAILABLE, "restarting")
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Unreachable):
            await client.tasks.get(7)
    assert len(scripted.calls) == ATTEMPTS


async def test_a_call_is_repeated_until_a_server_leads(scripted, refuse, monkeypatch) -> None:
    monkeypatch.setattr("hai.client.connection.transport.delays", lambda **_: iter([0.0] * 20))
    nobody = refuse(StatusCode.UNAVAILABLE, "no server leads just now", "NO_LEADER")
    scripted.unary["CreateTask"] = flaky(nobody, LEADERLESS_ATTEMPTS - 1, Task(id=1))
    scripted.unary["GetTask"] = nobody
    async with Client(scripted.profile) as client:
        assert (await client.tasks.create(TaskSpec(name="a"))).id == 1
        with pytest.raises(errors.Unreachable, match="no server leads just now"):
            await client.tasks.get(1)
    assert len(scripted.calls) == 2 * LEADERLESS_ATTEMPTS


async def test_create_is_repeated_with_the_same_request_id(scripted, refuse) -> None:
    unavailable = refuse(StatusCode.UNAVAILABLE, "restarting")
    scripted.unary["CreateTask"] = flaky(unavailable, 1, Task(id=1))
    async with Client(scripted.profile) as client:
        await client.tasks.create(TaskSpec(name="a"))
    first, second = (request.request_id for _, request in scripted.calls)
    assert first == second
    assert len(first) == 36


async def test_a_call_without_retry_is_made_once(scripted, refuse) -> None:
    scripted.unary["SuspendTask"] = refuse(StatusCode.UNAVAILABLE, "restarting")
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Unreachable):
            await client.tasks.suspend(7)
    assert len(scripted.calls) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(None, "cannot read the certificate file", id="no file"),
        pytest.param("", "there is no certificate", id="empty"),
        pytest.param("-----BEGIN PRIVATE KEY-----", "there is no certificate", id="another thing"),
    ],
)
async def test_a_ca_file_without_a_certificate_is_reported(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    async with Client(Profile("x", "hai.example.org:1", "t", ca=str(path))) as client:
        with pytest.raises(errors.UsageError, match=message):
            await client.server.info()


async def test_a_refusal_is_not_repeated(scripted, refuse) -> None:
    scripted.unary["GetTask"] = refuse(StatusCode.NOT_FOUND, "there is no task 7", "NOT_FOUND")
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.NotFound, match="there is no task 7"):
            await client.tasks.get(7)
    assert len(scripted.calls) == 1


async def test_every_call_has_a_deadline(scripted, never) -> None:
    scripted.unary["GetTask"] = never
    transport = Connection(scripted.profile, deadline=0.2)
    async with Client(scripted.profile, transport=transport) as client:
        with pytest.raises(errors.TimedOut, match=scripted.profile.server):
            await client.tasks.get(7)


async def test_the_error_about_an_unreachable_server_names_the_address() -> None:
    with socket.socket() as taken:  # bound but not listening, so that connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with Client(Profile("test", address)) as client:
            with pytest.raises(errors.Unreachable, match=address) as caught:
                await client.server.info()
    assert caught.value.reason == "UNREACHABLE"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("code", "reason", "kind", "words"),
    [
        pytest.param("NOT_FOUND", "NOT_FOUND", errors.NotFound, "server's words", id="not found"),
        pytest.param("PERMISSION_DENIED", "DENIED", errors.Denied, "server's words", id="denied"),
        pytest.param(
            "UNAUTHENTICATED",
            "UNAUTHENTICATED",
            errors.Unauthenticated,
            "does not accept the token",
            id="wrong token",
        ),
        pytest.param(
            "UNAUTHENTICATED",
            "TOKEN_EXPIRED",
            errors.Unauthenticated,
            "has expired",
            id="expired token",
        ),
        pytest.param(
            "UNAUTHENTICATED",
            "TOKEN_REVOKED",
            errors.Unauthenticated,
            "has been revoked",
            id="revoked token",
        ),
        pytest.param("FAILED_PRECONDITION", "CONFLICT", errors.Conflict, "server's", id="state"),
        pytest.param("ALREADY_EXISTS", "NAME_TAKEN", errors.Conflict, "server's", id="name taken"),
        pytest.param("ABORTED", "CONFLICT", errors.Conflict, "server's words", id="aborted"),
        pytest.param(
            "RESOURCE_EXHAUSTED", "LIMIT_REACHED", errors.LimitReached, "server's", id="limit"
        ),
        pytest.param("INTERNAL", "INTERNAL", errors.ServerError, "server's words", id="internal"),
        pytest.param("UNKNOWN", "", errors.ServerError, "server's words", id="unknown"),
        pytest.param(
            "UNIMPLEMENTED",
            "",
            errors.ServerError,
            r"does not know this call \(the server's words\): it is older than this client",
            id="old server",
        ),
    ],
)
async def test_each_status_becomes_its_error(scripted, refuse, code, reason, kind, words) -> None:
    scripted.unary["SuspendTask"] = refuse(StatusCode[code], "the server's words", reason)
    async with Client(scripted.profile) as client:
        with pytest.raises(kind, match=words) as caught:
            await client.tasks.suspend(7)
    assert type(caught.value) is kind
    expected = {"UNKNOWN": "INTERNAL", "UNIMPLEMENTED": "UNIMPLEMENTED"}.get(code, reason)
    assert caught.value.reason == expected


async def test_the_message_of_an_unavailable_server_is_kept(scripted, refuse) -> None:
    scripted.unary["SuspendTask"] = refuse(StatusCode.UNAVAILABLE, "the disk is full", "DISK_FULL")
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Unreachable, match=r"^the disk is full$") as caught:
            await client.tasks.suspend(7)
    assert caught.value.reason == "DISK_FULL"


def test_a_connection_that_breaks_during_a_write_is_unreachable() -> None:
    """This happens to a push whose server is killed, or whose connection breaks."""
    error = AioRpcError(StatusCode.INTERNAL, Metadata(), Metadata(), "Internal error from Core")
    reported = to_error(error, "host:1")
    assert (type(reported), reported.reason) == (errors.Unreachable, "UNREACHABLE")
    assert str(reported) == "cannot reach the server at host:1: the connection was lost"


async def test_an_invalid_error_has_every_violation(scripted, refuse) -> None:
    fields = (("name", "is missing"), ("services[0].port", "must be 1-65535"))
    scripted.unary["CreateTask"] = refuse(StatusCode.INVALID_ARGUMENT, "invalid", "INVALID", fields)
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Invalid) as caught:
            await client.tasks.create(TaskSpec())
    assert [(v.field, v.message) for v in caught.value.violations] == list(fields)


async def test_fields_that_a_server_knows_by_number_are_named(scripted, refuse) -> None:
    words = "this server does not know this field"
    fields = tuple((field, words) for field in ("hai.v1.OptionsSpec.32", "hai.v9.New.1", "request"))
    scripted.unary["CreateTask"] = refuse(
        StatusCode.INVALID_ARGUMENT, "invalid", "UNKNOWN_FIELD", fields
    )
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Invalid) as caught:
            await client.tasks.create(TaskSpec())
    named = [v.field for v in caught.value.violations]
    assert named == ["OptionsSpec.after", "hai.v9.New.1", "request"]


async def test_nothing_is_submitted_to_a_server_that_ignores_after(
    scripted,
) -> None:
    """All servers from before `after` existed ignore it."""
    spec = TaskSpec(name="second", options=OptionsSpec(after=[AfterSpec(task=1)]))

    async def create(request, context):
        assert request.validate_only
        known = TaskSpec.FromString(request.spec.SerializeToString())
        known.options.ClearField("after")
        return Task(spec=known)

    async def dry_run(request, context):
        return DryRunTaskResponse(
            task=await create(CreateTaskRequest(spec=request.spec, validate_only=True), context)
        )

    scripted.unary |= {"CreateTask": create, "DryRunTask": dry_run}
    async with Client(scripted.profile) as client:
        for ask in (client.tasks.create, client.tasks.dry_run):
            with pytest.raises(errors.ServerError, match=r"knows no options\.after") as caught:
                await ask(spec)
            assert caught.value.reason == "UNIMPLEMENTED"


async def test_support_for_after_is_checked_once(scripted) -> None:
    spec = TaskSpec(name="second", options=OptionsSpec(after=[AfterSpec(task=1)]))

    async def create(request, context):
        return Task(spec=request.spec)

    scripted.unary["CreateTask"] = create
    async with Client(scripted.profile) as client:
        for _ in range(2):
            await client.tasks.create(spec)
        await client.tasks.create(TaskSpec())
    asked = [request.validate_only for _, request in scripted.calls]
    assert asked == [True, False, False, False]


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param("localhost:1", True, id="localhost"),
        pytest.param("127.8.0.1:1", True, id="127/8"),
        pytest.param("[::1]:1", True, id="IPv6"),
        pytest.param("unix:/run/hai.sock", True, id="unix socket"),
        pytest.param("10.0.0.1:1", False, id="private network"),
        pytest.param("localhost.example.org:1", False, id="a name that begins so"),
        pytest.param("127.0.0.1.example.org:1", False, id="a name that looks like an address"),
    ],
)
def test_is_loopback_recognizes_addresses_of_this_machine(server: str, expected: bool) -> None:
    assert is_loopback(server) is expected


async def test_plaintext_off_loopback_requires_insecure(scripted, monkeypatch) -> None:
    monkeypatch.setattr("hai.client.connection.transport.is_loopback", lambda server: False)
    scripted.unary["GetServerInfo"] = flaky(None, 0, ServerInfo())
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Unreachable):
            await client.server.info()
    assert scripted.calls == []


async def test_a_missing_ca_file_is_reported() -> None:
    async with Client(Profile("test", "127.0.0.1:1", ca="/no/such.pem")) as client:
        with pytest.raises(errors.UsageError, match=r"/no/such\.pem"):
            await client.server.info()


@pytest.mark.parametrize("kind", ["unary", "stream", "resumed"])
async def test_closing_a_client_ends_its_calls_with_an_error(scripted, kind: str) -> None:
    """gRPC cancels these calls, which looked as if the surrounding asyncio tasks had been cancelled."""
    asked = asyncio.Event()

    async def silence(request: Any, context: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def silent_stream(request: Any, context: Any) -> AsyncIterator[Any]:
        await silence(request, context)
        yield

    scripted.unary["GetTask"], scripted.streams["WatchTasks"] = silence, silent_stream
    client = Client(scripted.profile)
    calls = {
        "unary": lambda: client.tasks.get(7),
        "stream": lambda: anext(client.tasks.watch(patience=0)),
        "resumed": lambda: anext(client.tasks.watch()),
    }
    work = asyncio.ensure_future(calls[kind]())
    await asyncio.wait_for(asked.wait(), 5)
    await client.close()
    await asyncio.wait([work], timeout=5)
    assert work.done()
    assert not work.cancelled()
    with pytest.raises(errors.Closed, match="was closed"):
        work.result()
    with pytest.raises(errors.Closed, match=scripted.profile.server):
        await calls[kind]()

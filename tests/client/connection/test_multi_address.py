"""Tests of a profile with several addresses: one reachable server is enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from grpc import StatusCode

from hai.client import errors, profile
from hai.client.client import Client
from hai.client.connection import multi_address, transport
from hai.client.profile import Profile
from hai.v1.server_service_pb2 import ServerInfo
from hai.v1.task_pb2 import Task
from hai.v1.task_service_pb2 import WatchTasksResponse
from tests.ports import free_port


def answering(value: Any) -> Any:
    async def call(request: Any, context: Any) -> Any:
        return value

    return call


def several(*addresses: str) -> Profile:
    return Profile("test", ", ".join(addresses), "secret")


async def test_an_unreachable_address_is_skipped_also_for_calls_without_retry(
    scripted: Any,
) -> None:
    scripted.unary["SuspendTask"] = answering(Task(id=7))
    async with Client(several(f"127.0.0.1:{free_port()}", scripted.profile.server)) as client:
        assert (await client.tasks.suspend(7)).id == 7
    assert len(scripted.calls) == 1


async def test_the_next_address_is_used_when_the_server_dies(two_servers: Any) -> None:
    for number, server in enumerate(two_servers):
        server.unary["GetServerInfo"] = answering(ServerInfo(version=str(number)))
    async with Client(several(*(server.profile.server for server in two_servers))) as client:
        assert (await client.server.info()).version == "0"
        await two_servers[0].stop()
        assert (await client.server.info()).version == "1"
        assert (await client.server.info()).version == "1"


async def test_a_restarted_server_is_used_at_once(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC itself would wait longer and longer before it tries again."""
    slow = {**dict(transport._OPTIONS), "grpc.initial_reconnect_backoff_ms": 60_000}
    slow["grpc.max_reconnect_backoff_ms"] = 60_000
    monkeypatch.setattr(transport, "_OPTIONS", tuple(slow.items()))
    scripted.unary["SuspendTask"] = answering(Task(id=7))
    async with Client(scripted.profile) as client:
        for fresh in (99.0, 0.0):
            monkeypatch.setattr(multi_address, "STALE_SECONDS", fresh)
            await scripted.stop()
            with pytest.raises(errors.Unreachable):
                await client.tasks.suspend(7)
            await scripted.start()
            if fresh:  # the server did not exist a moment ago
                with pytest.raises(errors.Unreachable):
                    await client.tasks.suspend(7)
            else:
                assert (await client.tasks.suspend(7)).id == 7


async def test_a_stream_continues_while_its_server_refuses_new_calls(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_address, "STALE_SECONDS", 0.0)
    end = asyncio.Event()

    async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield WatchTasksResponse(version=1)
        await end.wait()
        yield WatchTasksResponse(version=2)

    scripted.streams["WatchTasks"] = watch
    async with Client(scripted.profile) as client:
        watching = client.tasks.watch()
        assert (await anext(watching)).version == 1
        leaving = asyncio.create_task(scripted.stop(grace=20))
        for _ in range(3):
            with pytest.raises(errors.Unreachable):
                await client.tasks.suspend(7)
        end.set()
        assert (await anext(watching)).version == 2
        await watching.aclose()
        await leaving


async def test_an_unavailable_server_is_replaced_by_the_next_one(
    two_servers: Any, refuse: Any
) -> None:
    two_servers[0].unary["GetTask"] = refuse(StatusCode.UNAVAILABLE, "no server leads", "NO_LEADER")
    two_servers[1].unary["GetTask"] = answering(Task(id=7))
    async with Client(several(*(server.profile.server for server in two_servers))) as client:
        assert (await client.tasks.get(7)).id == 7
    assert (len(two_servers[0].calls), len(two_servers[1].calls)) == (1, 1)


async def test_a_stream_is_reopened_at_another_address(two_servers: Any) -> None:
    async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield WatchTasksResponse(version=request.after_version + 1)
        if request.after_version == 0:
            await context.abort(StatusCode.UNAVAILABLE, "it dies")

    for server in two_servers:
        server.streams["WatchTasks"] = watch
    received = []
    async with Client(several(*(server.profile.server for server in two_servers))) as client:
        async for answer in client.tasks.watch():
            received.append(answer.version)
            if len(received) == 2:
                break
    assert received == [1, 2]
    assert (len(two_servers[0].calls), len(two_servers[1].calls)) == (1, 1)


async def test_the_error_names_all_addresses_if_none_answers() -> None:
    expected = several(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")
    async with Client(expected) as client:
        with pytest.raises(errors.Unreachable) as caught:
            await client.server.info()
    assert expected.server in caught.value.message


def test_a_profile_stores_several_addresses(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("HAI_SERVER", raising=False)
    kept = replace(several("a:1", "b:2"), name="lab")
    profile.save(kept)
    assert profile.load() == kept
    assert profile.load().addresses == ("a:1", "b:2")
    monkeypatch.setenv("HAI_SERVER", "a:1, b:2")
    assert profile.load().token == "secret", "the token goes to the servers that it is stored for"

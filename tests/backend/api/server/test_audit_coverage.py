"""Every RPC of the contract either reads, or leaves one row of the audit: tried with each of them, on a real server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor

from hai_backend.api.server.methods import RULES, Door, service_names
from hai_backend.store.base import AuditQuery

READS = re.compile(r"(Get|List|Watch|Explain|Tail|Fetch|Check|Export|WhoAmI|DryRun)[A-Za-z]*")


def methods() -> list[MethodDescriptor]:
    pool = descriptor_pool.Default()
    services = [pool.FindServiceByName(name) for name in service_names()]
    return [
        method
        for service in services
        for method in service.methods
        if RULES[path(method)].door is Door.TOKEN
    ]


def path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_what_is_named_like_a_read_changes_nothing_and_what_is_not_is_recorded() -> None:
    reads = {m.name for m in methods() if not RULES[path(m)].mutates}
    assert {name for name in reads if not READS.fullmatch(name)} == set()
    assert {m.name for m in methods()} - reads == {
        m.name for m in methods() if not READS.fullmatch(m.name)
    }


@pytest.mark.parametrize("method", methods(), ids=lambda m: m.name)
async def test_a_call_leaves_a_row_unless_it_reads(platform: Any, method: MethodDescriptor) -> None:
    admin = await platform.caller("root")
    before = len((await platform.store.audit(AuditQuery(page_size=1000))).rows)
    with suppress(grpc.aio.AioRpcError, TimeoutError):
        async with asyncio.timeout(2):
            await call(admin, method)
    rows = (await platform.store.audit(AuditQuery(page_size=1000))).rows
    new = rows[: len(rows) - before]
    assert [row.method for row in new] == [method.name] * RULES[path(method)].mutates
    assert all(row.actor == "root" for row in new)


async def call(caller: Any, method: MethodDescriptor) -> None:
    """With a request that says nothing; of a stream the first answer."""
    request = message_factory.GetMessageClass(method.input_type)
    answer = message_factory.GetMessageClass(method.output_type)
    kinds = {
        (False, False): caller.channel.unary_unary,
        (False, True): caller.channel.unary_stream,
        (True, True): caller.channel.stream_stream,
    }
    make = kinds[method.client_streaming, method.server_streaming]
    stub = make(path(method), request.SerializeToString, answer.FromString)

    async def requests() -> AsyncIterator[Any]:
        yield request()

    sent = requests() if method.client_streaming else request()
    made = stub(sent, metadata=caller._metadata, timeout=2)
    if method.server_streaming:
        async for _ in made:
            made.cancel()
            return
    else:
        await made

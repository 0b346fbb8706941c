"""Every RPC of the contract either reads only, or has one audit row. Each one is called on a real server."""

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
from google.protobuf.message import Message

from hai_backend.api.server.methods import RULES, Credential, service_names
from hai_backend.store.base import AuditQuery

_MAX_DEPTH = 5
_PUBLIC_NAMES = """
    add author client_id conditions deprecated description format group groups holder host_type last_error layer
    location lock_hash message mount_path name news owner owners parent path paths prefix pull_secret python_version
    reason reference remove request_id right rights service source subject tag task_name text type user user_group
    user_groups username version
"""
PUBLIC = set(_PUBLIC_NAMES.split())
"""Fields of requests that a row may show: none holds a secret (`pull_secret` is the name of one in Kubernetes)."""
READS = re.compile(r"(Get|List|Watch|Explain|Tail|Fetch|Check|Export|WhoAmI|DryRun)[A-Za-z]*")


def methods() -> list[MethodDescriptor]:
    pool = descriptor_pool.Default()
    services = [pool.FindServiceByName(name) for name in service_names()]
    return [
        method
        for service in services
        for method in service.methods
        if RULES[path(method)].credential is Credential.USER_TOKEN
    ]


def path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_only_methods_named_like_reads_are_not_audited() -> None:
    reads = {m.name for m in methods() if not RULES[path(m)].mutates}
    assert {name for name in reads if not READS.fullmatch(name)} == set()
    assert {m.name for m in methods()} - reads == {
        m.name for m in methods() if not READS.fullmatch(m.name)
    }


@pytest.mark.parametrize("method", methods(), ids=lambda m: m.name)
async def test_every_call_except_reads_has_an_audit_row(
    platform: Any, method: MethodDescriptor
) -> None:
    admin = await platform.caller("root")
    before = len((await platform.store.audit(AuditQuery(page_size=1000))).rows)
    with suppress(grpc.aio.AioRpcError, TimeoutError):
        async with asyncio.timeout(2):
            await call(admin, method)
    rows = (await platform.store.audit(AuditQuery(page_size=1000))).rows
    new = rows[: len(rows) - before]
    assert [row.method for row in new] == [method.name] * RULES[path(method)].mutates
    assert all(row.actor == "root" for row in new)


async def call(caller: Any, method: MethodDescriptor, filled: str = "") -> None:
    """Call a method with an empty request, or with `text` in all text fields. Return the first response of a stream."""
    request = message_factory.GetMessageClass(method.input_type)
    answer = message_factory.GetMessageClass(method.output_type)
    message = request()
    if filled:
        fill(message, filled)
    kinds = {
        (False, False): caller.channel.unary_unary,
        (False, True): caller.channel.unary_stream,
        (True, True): caller.channel.stream_stream,
    }
    make = kinds[method.client_streaming, method.server_streaming]
    stub = make(path(method), request.SerializeToString, answer.FromString)

    async def requests() -> AsyncIterator[Any]:
        yield message

    sent = requests() if method.client_streaming else message
    made = stub(sent, metadata=caller._metadata, timeout=2)
    if method.server_streaming:
        async for _ in made:
            made.cancel()
            return
    else:
        await made


def fill(message: Message, secret: str, depth: int = 0) -> None:
    """Put `secret-FIELD` into every text field of a message, also of maps and nested messages."""
    for field in message.DESCRIPTOR.fields:
        text = f"{secret}-{field.name}"
        entry = (
            field.message_type
            if field.message_type and field.message_type.GetOptions().map_entry
            else None
        )
        if entry is not None:
            if entry.fields_by_name["value"].type == field.TYPE_STRING:
                getattr(message, field.name)[text] = text
        elif field.message_type is not None:
            if depth < _MAX_DEPTH:
                inner = getattr(message, field.name)
                fill(inner.add() if field.is_repeated else inner, secret, depth + 1)
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            value = text.encode() if field.type == field.TYPE_BYTES else text
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


@pytest.mark.parametrize(
    "method", [m for m in methods() if RULES[path(m)].mutates], ids=lambda m: m.name
)
async def test_audit_row_has_no_possibly_secret_text(
    platform: Any, method: MethodDescriptor
) -> None:
    """A field that is not in PUBLIC must not get into a row: add it there only if it never holds a secret."""
    with suppress(grpc.aio.AioRpcError, TimeoutError):
        async with asyncio.timeout(2):
            await call(await platform.caller("root"), method, "s3cr3t")
    rows = (await platform.store.audit(AuditQuery(page_size=1000))).rows
    assert set(re.findall(r"s3cr3t-(\w+)", repr(rows))) <= PUBLIC


@pytest.mark.parametrize(
    "method", [m for m in methods() if RULES[path(m)].mutates], ids=lambda m: m.name
)
async def test_audit_row_has_no_credentials_of_a_url(
    platform: Any, method: MethodDescriptor
) -> None:
    with suppress(grpc.aio.AioRpcError, TimeoutError):
        async with asyncio.timeout(2):
            await call(await platform.caller("root"), method, "https://ada:s3cr3t@example.org/")
    assert "s3cr3t" not in repr((await platform.store.audit(AuditQuery(page_size=1000))).rows)

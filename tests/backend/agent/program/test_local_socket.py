"""Which processes may call an agent, and how invalid calls are answered."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from hai_backend.agent.program.local_socket import Answer, LocalSocket, integer


async def double(request) -> Answer:
    return {"ok": True, "value": 2 * integer(request, "value", 0, 100)}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[LocalSocket]:
    server = LocalSocket(tmp_path / "agent.sock", {"double": double})
    await server.open()
    yield server
    server.close()


async def ask(path: Path, *lines: bytes) -> list[Answer]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"".join(line + b"\n" for line in lines))
    writer.write_eof()
    answers = [json.loads(line) async for line in reader]
    writer.close()
    return answers


async def test_calls_are_answered_in_order(served, tmp_path):
    calls = [json.dumps({"call": "double", "value": i}).encode() for i in range(50)]
    assert [a["value"] for a in await ask(tmp_path / "agent.sock", *calls)] == list(
        range(0, 100, 2)
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(b"not json", "double", id="not json"),
        pytest.param(b"[1]", "double", id="no object"),
        pytest.param(b'{"call":"halve"}', "double", id="no such call"),
        pytest.param(b'{"call":["double"]}', "double", id="no name"),
        pytest.param(b"[" * 50_000, "double", id="deep"),
        pytest.param(b'{"call":"double"}', "value must be an integer", id="argument missing"),
        pytest.param(b'{"call":"double","value":true}', "value must be", id="wrong type"),
        pytest.param(b'{"call":"double","value":101}', "0 to 100", id="out of range"),
        pytest.param(b"x" * 70_000, "longer than", id="too long"),
    ],
)
async def test_nonsense_is_answered_with_what_to_do(served, tmp_path, line, error):
    (answer,) = await ask(tmp_path / "agent.sock", line)
    assert answer["ok"] is False
    assert error in str(answer["error"])


async def test_the_socket_is_for_its_user_only(served, tmp_path):
    assert stat.S_IMODE(os.stat(tmp_path / "agent.sock").st_mode) == 0o600


async def test_another_user_is_not_answered(tmp_path):
    server = LocalSocket(tmp_path / "agent.sock", {"double": double}, owner=os.getuid() + 1)
    await server.open()
    with suppress(ConnectionResetError):
        assert await ask(tmp_path / "agent.sock", b'{"call":"double","value":1}') == []
    server.close()


async def test_a_long_path_becomes_a_link_to_a_short_one(tmp_path):
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    server = LocalSocket(deep / "agent.sock", {"double": double})
    await server.open()
    target = (deep / "agent.sock").readlink()
    (answer,) = await ask(target, b'{"call":"double","value":1}')
    assert answer == {"ok": True, "value": 2}
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    server.close()
    assert not target.parent.exists()

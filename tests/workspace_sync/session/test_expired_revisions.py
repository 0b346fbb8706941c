"""Tests a sync whose last revision the server has deleted meanwhile."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hai.client.connection.transport import Connection
from tests.support.servers import running_server

SIZE = 3_000_000


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """Connect to a server whose quota holds only three of the test's files, so that it deletes revisions early."""
    async with running_server(tmp_path / "server", workspace_bytes=10_000_000) as server:
        connection = Connection(server.profile)
        yield connection
        await connection.close()


async def test_removals_are_pulled_after_old_revisions_were_deleted(laptops) -> None:
    editor, absent = await laptops("stays"), await laptops("goes")
    for name in ("a", "b"):
        editor.write(name)
    await editor.push()
    await absent.pull()
    (editor.root / "a").unlink()
    await editor.push()
    for seed in range(4):
        editor.write("big", random.Random(seed).randbytes(SIZE))
        await editor.push()
    kept = [revision.number for revision in await editor.session.remote.revisions(100)]
    assert 1 not in kept
    report = await absent.pull()
    assert report.in_sync
    assert absent.read() == editor.read() == editor.on_cluster()

"""Tests of a server whose disk is full: received contents are kept, and used once there is room."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai.client.connection.transport import Connection
from hai.client.errors import LimitReached
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_sync.cli.session_factory import open_session
from hai_sync.workspace_dir import create_workspace
from tests.small_disk import fill, small_disk
from tests.support.servers import running_server
from tests.workspace_sync.conftest import Laptop

MB = 1 << 20
REAL = Push.receive


@dataclass(frozen=True, slots=True)
class SmallServer:
    """A laptop, and the small disk of its server."""

    laptop: Laptop
    disk: Path

    @property
    def received_bytes(self) -> int:
        """The number of received bytes that wait for the next push."""
        return sum(
            path.stat().st_size for path in (self.laptop.cluster.parent / "incoming").iterdir()
        )


@pytest.fixture
async def small_server(tmp_path: Path) -> AsyncIterator[SmallServer]:
    """Run a server with a disk of 128 MB for everything except the database of tasks."""
    with small_disk(tmp_path / "disk", 128) as disk:
        async with running_server(tmp_path / "home", nodes=1, shared=str(disk)) as server:
            connection = Connection(server.profile)
            root = tmp_path / "laptop"
            root.mkdir()
            local, _ = create_workspace(root, "w")
            session = open_session(local, connection)
            workspace = await session.remote.create()
            laptop = Laptop(root, session, Path(workspace.path))
            yield SmallServer(laptop, disk)
            laptop.session.index.close()
            await connection.close()


async def test_a_push_that_does_not_fit_is_refused_before_it_is_sent(
    small_server: SmallServer,
) -> None:
    laptop = small_server.laptop
    laptop.write("kept", "1")
    await laptop.sync()
    laptop.write("large", os.urandom(130 * MB))
    with pytest.raises(LimitReached, match="the storage of workspaces is full") as reported:
        await laptop.sync()
    assert reported.value.reason == "DISK_FULL"
    assert (laptop.on_cluster(), small_server.received_bytes) == ({"kept": b"1"}, 0)
    (laptop.root / "large").unlink()
    laptop.write("other", "2")
    await laptop.sync()
    assert laptop.on_cluster() == laptop.read()


async def test_a_disk_that_fills_during_a_push_keeps_the_reserve(
    small_server: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller push gets the room of the broken push, even if it has nothing else to send."""
    laptop = small_server.laptop
    laptop.write("kept", "1")
    await laptop.sync()
    laptop.write("large", os.urandom(24 * MB))
    fills(monkeypatch, small_server.disk, after=8 * MB)
    for _ in range(2):
        with pytest.raises(LimitReached, match="reserve of the database"):
            await laptop.sync()
    assert (small_server.disk / "filling").exists()
    # less than the reserve of 6 MB, because data in transit may have used some of it
    assert os.statvfs(small_server.disk).f_bavail * 4096 > 2 * MB
    assert small_server.received_bytes > 4 * MB
    assert laptop.on_cluster() == {"kept": b"1"}
    (laptop.root / "large").unlink()
    await laptop.sync()
    assert (small_server.received_bytes, laptop.on_cluster()) == (0, {"kept": b"1"})


async def test_received_contents_are_used_by_the_next_push(
    small_server: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = small_server.laptop
    laptop.write("large", os.urandom(64 * MB))
    fills(monkeypatch, small_server.disk, after=48 * MB)
    with pytest.raises(LimitReached):
        await laptop.sync()
    (small_server.disk / "filling").unlink()
    monkeypatch.setattr(Push, "receive", REAL)
    report = await laptop.sync()
    assert report.wire_bytes < 40 * MB
    assert (laptop.on_cluster(), small_server.received_bytes) == (laptop.read(), 0)


def fills(monkeypatch: pytest.MonkeyPatch, disk: Path, *, after: int) -> None:
    """Fill the disk except for 8 MB when so many bytes of a push have been received."""

    def receive(push: Push, pieces: list[ContentsMessage]) -> int:
        received = REAL(push, pieces)
        if received >= after:
            fill(disk, but=8 * MB)
        return received

    monkeypatch.setattr(Push, "receive", receive)

"""The last bytes of a disk are reserved for the database, and unneeded contents do not keep a disk full."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.client.errors import LimitReached
from hai.client.taskfile.spec import read_spec
from hai.host.disk_reserve import RESERVE_BYTES, DiskReserve, DiskSpace, disk_space
from hai_backend.workspaces import checkouts
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push import apply
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import tree_scan
from tests.small_disk import fill, small_disk
from tests.support.servers import running_server
from tests.support.workspaces import Pusher

MB = 1 << 20


@pytest.mark.parametrize(
    ("total", "available", "free"),
    [
        pytest.param(1 << 40, 1 << 39, (1 << 39) - RESERVE_BYTES, id="large"),
        pytest.param(100 * MB, 50 * MB, 45 * MB, id="small: a twentieth"),
        pytest.param(100 * MB, 5 * MB, 0, id="full"),
        pytest.param(100 * MB, 0, -5 * MB, id="without the reserve"),
    ],
)
def test_the_reserve_of_a_disk_depends_on_its_size(
    total: int, available: int, free: int, monkeypatch
) -> None:
    found = os.statvfs_result((1, 1, total, available, available, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    assert disk_space(Path("/")).free == free
    reserve = DiskReserve(Path("/srv/hai"))
    assert reserve.free() == free
    with pytest.raises(OSError, match=r"reserved for the database.*/srv/hai") as error:
        reserve.require(free + 1)
    assert error.value.errno == errno.ENOSPC


def test_a_disk_of_unknown_size_has_no_reserve(monkeypatch) -> None:
    monkeypatch.setattr("hai.host.disk_reserve.disk_space", lambda path: DiskSpace(0, 0, 0))
    DiskReserve(Path("/")).require(1 << 50)


async def test_tasks_can_be_submitted_after_workspaces_have_filled_the_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 96) as disk:
        database = f"sqlite:///{disk / 'hai.db'}"
        async with (
            running_server(disk, nodes=1, database=database) as server,
            Client(server.profile) as client,
        ):
            pusher = await Pusher(client, "w").create()
            with pytest.raises(LimitReached, match="the storage of workspaces is full"):
                await push_without_end(pusher)
            assert disk_space(disk).free < MB
            for number in range(20):
                program = {"workspace": "/tmp", "entrypoint": "true", "entrypoint_executable": True}
                fields = {"version": 2, "name": f"t{number}", "spec": program}
                await client.tasks.create(read_spec(fields))
            await pusher.lease()
            some = [f"f{number}" for number in range(20)]
            assert len(b"".join(await pusher.fetch(pusher.base, *some))) == 20 * MB


async def push_without_end(pusher: Pusher) -> None:
    for number in range(200):
        await pusher.push({f"f{number}": os.urandom(MB)})


async def test_uncommitted_contents_are_deleted_after_a_day_without_pushes(tmp_path: Path) -> None:
    old, new = (tmp_path / "workspaces/admin" / name for name in ("old", "new"))
    for directory, age in (
        (old, garbage.INCOMING_RETENTION_SECONDS + 60),
        (new, garbage.INCOMING_RETENTION_SECONDS / 2),
    ):
        make_directories(directory, 0)
        WorkspaceFiles(directory, 0).close()
        left = directory / "incoming" / f"{'ab' * 32}.part"
        left.write_bytes(b"left")
        os.utime(left, (time.time() - age,) * 2)
    async with running_server(tmp_path, nodes=1), asyncio.timeout(20):
        while any((old / "incoming").iterdir()):  # noqa: ASYNC110 - a disk tells nobody
            await asyncio.sleep(0.005)
    assert [path.name for path in (new / "incoming").iterdir()] == [f"{'ab' * 32}.part"]


def test_an_incomplete_task_directory_is_deleted_when_the_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        directory = disk / "u" / "w"
        make_directories(directory, 0)
        with closing(WorkspaceFiles(directory, 0)) as files:
            apply.recover(files)
            for number in range(20):
                (files.tree / f"f{number}").write_bytes(os.urandom(MB))
            revision = tree_scan.scan_tree(files, Author("tasks", 1.0)).number
            filling = fill(disk, but=12 * MB)
            before = disk_space(disk).available
            with pytest.raises(OSError, match="reserved for the database"):
                checkouts.create(files, 1, revision, 0)
            assert (os.listdir(files.tasks), disk_space(disk).available) == ([], before)
            filling.unlink()
            checkouts.create(files, 1, revision, 0)
            assert len(os.listdir(files.tasks / "1")) == 20

"""A file to which programs only append, such as a log, keeps all its versions; other changes lose some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hai.client.errors import Conflict
from hai.v1.task_pb2 import TaskOutcome
from tests.backend.workspaces.test_checkouts import spec

READER = b"print(open('train.log').read(), end='')"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def test_each_committed_version_can_be_read(service) -> None:
    pusher, log = await service.pusher(), service.files() / "d/train.log"
    log.parent.mkdir()
    for line in (b"one\n", b"two\n", b"three\n"):
        append(log, line)
        await pusher.tree()
    append(log, b"four\n")
    found = [await pusher.fetch(number, "d/train.log") for number in (1, 2, 3)]
    assert found == [[b"one\n"], [b"one\ntwo\n"], [b"one\ntwo\nthree\n"]]
    assert os.listdir(service.root / "w/incoming") == []


async def test_a_version_that_was_overwritten_is_lost(service) -> None:
    pusher, log = await service.pusher(), service.files() / "log"
    append(log, b"one\n")
    await pusher.tree()
    log.write_bytes(b"two\nthree\n")
    with pytest.raises(Conflict) as lost:
        await pusher.fetch(1, "log")
    assert lost.value.reason == "CONTENT_LOST"
    assert os.listdir(service.root / "w/incoming") == []


@pytest.mark.parametrize("other", ["pipe", "directory", "link", "nothing"])
async def test_a_replaced_file_is_not_read(service, other: str) -> None:
    pusher, log = await service.pusher(), service.files() / "log"
    append(log, b"one\n")
    await pusher.tree()
    log.rename(service.files() / "away")
    append(service.files() / "away", b"two\n")
    make = {
        "pipe": lambda: os.mkfifo(log),
        "directory": log.mkdir,
        "link": lambda: log.symlink_to("away"),
        "nothing": lambda: None,
    }
    make[other]()
    with pytest.raises(Conflict):
        await pusher.fetch(1, "log")


async def test_a_growing_log_does_not_prevent_the_checkout_of_its_revision(service) -> None:
    pusher, log = await service.pusher(), service.files() / "train.log"
    await pusher.push({"run.py": b"print()"})
    append(log, b"one\n")
    await pusher.tree()
    pusher.base = 2
    append(log, b"two\n")
    await pusher.push({"run.py": READER})
    append(log, b"three\n")
    created = await service.client.tasks.create(spec("haiworkspace://w"))
    done = await service.client.tasks.wait(created.id, timeout=60)
    assert done.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED, done.reason
    lines = [line.text async for a in service.client.logs.tail(created.id) for line in a.lines]
    assert lines == ["one"]

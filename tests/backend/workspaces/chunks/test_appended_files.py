"""A file that programs only add to, as a log, still has all its versions; one that they change has lost some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hai.client.errors import Conflict
from hai.v1.task_pb2 import TaskOutcome
from tests.backend.workspaces.test_tasks import spec

READER = b"print(open('train.log').read(), end='')"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def test_each_version_that_was_seen_can_be_read(here) -> None:
    pusher, log = await here.pusher(), here.files() / "d/train.log"
    log.parent.mkdir()
    for line in (b"one\n", b"two\n", b"three\n"):
        append(log, line)
        await pusher.tree()
    append(log, b"four\n")
    found = [await pusher.fetch(number, "d/train.log") for number in (1, 2, 3)]
    assert found == [[b"one\n"], [b"one\ntwo\n"], [b"one\ntwo\nthree\n"]]
    assert os.listdir(here.root / "w/incoming") == []


async def test_what_is_not_its_beginning_any_more_is_lost(here) -> None:
    pusher, log = await here.pusher(), here.files() / "log"
    append(log, b"one\n")
    await pusher.tree()
    log.write_bytes(b"two\nthree\n")
    with pytest.raises(Conflict) as lost:
        await pusher.fetch(1, "log")
    assert lost.value.reason == "CONTENT_LOST"
    assert os.listdir(here.root / "w/incoming") == []


@pytest.mark.parametrize("other", ["pipe", "directory", "link", "nothing"])
async def test_what_has_taken_its_place_is_not_read(here, other: str) -> None:
    pusher, log = await here.pusher(), here.files() / "log"
    append(log, b"one\n")
    await pusher.tree()
    log.rename(here.files() / "away")
    append(here.files() / "away", b"two\n")
    make = {
        "pipe": lambda: os.mkfifo(log),
        "directory": log.mkdir,
        "link": lambda: log.symlink_to("away"),
        "nothing": lambda: None,
    }
    make[other]()
    with pytest.raises(Conflict):
        await pusher.fetch(1, "log")


async def test_a_log_that_grows_keeps_no_task_from_its_revision(here) -> None:
    pusher, log = await here.pusher(), here.files() / "train.log"
    await pusher.push({"run.py": b"print()"})
    append(log, b"one\n")
    await pusher.tree()
    pusher.base = 2
    append(log, b"two\n")
    await pusher.push({"run.py": READER})
    append(log, b"three\n")
    created = await here.client.tasks.create(spec("haiworkspace://w"))
    done = await here.client.tasks.wait(created.id, timeout=60)
    assert done.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED, done.reason
    lines = [line.text async for a in here.client.logs.tail(created.id) for line in a.lines]
    assert lines == ["one"]

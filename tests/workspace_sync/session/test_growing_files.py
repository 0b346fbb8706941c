"""Tests that files that always grow are reported, and do not block other files."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

LARGE = b"x" * 1_500_000


@contextmanager
def growing(paths: Sequence[Path]) -> Iterator[None]:
    """Let a program append to these files."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.002):
            for path in paths:
                with path.open("ab") as file:
                    file.write(b"line\n")

    program = threading.Thread(target=write)
    program.start()
    try:
        yield
    finally:
        over.set()
        program.join()


@pytest.mark.parametrize("count", [1, 4])
async def test_growing_remote_files_do_not_block_a_pull(laptop, count: int) -> None:
    logs = [laptop.cluster / f"{number}.log" for number in range(count)]
    for log in logs:
        log.write_bytes(LARGE)
    (laptop.cluster / "result.txt").write_text("42")
    with growing(logs):
        report = await laptop.pull()
    assert laptop.read()["result.txt"] == b"42"
    assert set(report.problems) <= {log.name for log in logs}
    report = await laptop.pull()
    assert (report.in_sync, laptop.read()) == (True, laptop.on_cluster())


@pytest.mark.parametrize("count", [1, 4])
async def test_growing_local_files_do_not_block_a_push(laptop, count: int) -> None:
    logs = [laptop.root / f"{number}.log" for number in range(count)]
    for log in logs:
        log.write_bytes(LARGE)
    laptop.write("code.py", "new")
    with growing(logs):
        await laptop.push()
    assert laptop.on_cluster()["code.py"] == b"new"
    report = await laptop.push()
    assert (report.in_sync, laptop.read()) == (True, laptop.on_cluster())

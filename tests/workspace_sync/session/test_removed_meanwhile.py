"""Tests of files that are removed between the listing and the reading of a directory."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.rescan import rescan
from hai_sync.scan import Filter, ScanCache, scan
from hai_sync.session.options import NullListener, Report, SyncOptions

LARGE = 3_000_000


class OnStage(NullListener):
    """Calls a function once, at the beginning of a stage of a sync."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = [work]

    def stage(self, name: str, files: int, size: int) -> None:
        """Call the function."""
        if name == self._name and self._work:
            self._work.pop()()


async def pushed(laptop, stage: str, work: Callable[[], None]) -> Report:
    """Return the report of a push during which a function is called."""
    laptop.session.listener = OnStage(stage, work)
    laptop.session.forget_hints()
    return await laptop.session.sync(SyncOptions(Rules(Mode.PUSH)))


@pytest.mark.parametrize("stage", ["hash", "upload"])
@pytest.mark.parametrize("size", [10, LARGE], ids=["small", "large"])
async def test_a_new_file_that_is_removed_meanwhile_is_ignored(
    laptop, stage: str, size: int
) -> None:
    laptop.write("t2.txt", b"x" * size)
    laptop.write("code.py", "1")
    report = await pushed(laptop, stage, (laptop.root / "t2.txt").unlink)
    assert (report.problems, report.in_sync) == ({}, True)
    assert laptop.on_cluster() == {"code.py": b"1"}


@pytest.mark.parametrize("stage", ["hash", "upload"])
@pytest.mark.parametrize("size", [10, LARGE], ids=["small", "large"])
async def test_a_synced_file_that_is_removed_meanwhile_is_removed_remotely(
    laptop, stage: str, size: int
) -> None:
    laptop.write("old", "1")
    laptop.write("code.py", "1")
    await laptop.push()
    laptop.write("old", b"2" * size)
    laptop.write("code.py", "2")
    report = await pushed(laptop, stage, (laptop.root / "old").unlink)
    assert (report.problems, report.in_sync) == ({}, True)
    assert laptop.on_cluster() == {"code.py": b"2"}
    assert not (await laptop.push()).outcome.to_remote


async def test_a_directory_removed_meanwhile_is_removed_with_its_files(laptop) -> None:
    laptop.write("run/tmp/a", "1")
    laptop.write("code.py", "1")
    report = await pushed(laptop, "upload", lambda: shutil.rmtree(laptop.root / "run"))
    assert (report.problems, laptop.on_cluster()) == ({}, {"code.py": b"1"})
    assert (await laptop.push()).in_sync
    assert os.listdir(laptop.cluster) == ["code.py"]


async def test_a_file_that_returns_is_pushed_by_the_next_sync(laptop) -> None:
    laptop.write("a", "1")
    laptop.write("b", "1")
    await pushed(laptop, "upload", (laptop.root / "a").unlink)
    laptop.write("a", "1")
    assert (await laptop.push()).in_sync
    assert laptop.on_cluster() == laptop.read()


def test_a_directory_removed_before_it_is_read_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_text("1")
    calls = iter(range(9))

    def removed_on_second_call() -> bool:
        if next(calls) == 1:
            shutil.rmtree(tmp_path / "d")
        return False

    found = scan(tmp_path, ScanCache(cancelled=removed_on_second_call), Filter())
    assert (found.problems, found.tree) == ({}, {})


@contextmanager
def changing_files(root: Path, paths: Sequence[str]) -> Iterator[None]:
    """Let a program create and remove files, links and directories with these names."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for path in paths:
                (root / path).write_text("x")
                (root / path).unlink()
                (root / path).symlink_to("x")
                (root / path).unlink()
                (root / path).mkdir()
                (root / path / "inside").write_text("x")
                shutil.rmtree(root / path)

    program = threading.Thread(target=work)
    program.start()
    try:
        yield
    finally:
        over.set()
        program.join()


def test_scans_beside_a_busy_program_report_no_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("1")
    names = ["a", "b", "c"]
    with changing_files(tmp_path, names):
        for _ in range(100):
            found = scan(tmp_path, ScanCache(), Filter())
            again = rescan(found, names, Filter())
            assert again is not None
            for each in (found, again):
                assert not [why for why in each.problems.values() if "cannot be read" in why]
                assert "kept" in each.tree


async def test_pushes_beside_a_busy_program_succeed(laptop) -> None:
    laptop.write("code.py", "1")
    with changing_files(laptop.root, ["t1.txt", "t2.txt", "t3.txt"]):
        for number in range(10):
            laptop.write("code.py", str(number))
            report = await laptop.sync(Mode.PUSH)
            assert not [why for why in report.problems.values() if "cannot be read" in why]
            assert laptop.on_cluster()["code.py"] == str(number).encode()

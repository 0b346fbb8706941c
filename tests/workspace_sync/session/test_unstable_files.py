"""Tests which unstable files count as quiet. The time is an argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_sync.errors import CHANGES_WHILE_READ
from hai_sync.session.options import Report
from hai_sync.session.unstable_files import MAX_QUIET_SECONDS, MIN_QUIET_SECONDS, UnstableFiles


@pytest.fixture
def unstable_files(tmp_path: Path) -> UnstableFiles:
    """Return a tracker with one file that a sync skipped at time 0 and that was polled once."""
    (tmp_path / "log").write_text("1")
    found = UnstableFiles(tmp_path)
    found.replace(["log"], 0.0)
    assert found.take_quiet(0.0) == set()
    return found


def test_a_file_is_quiet_after_it_stayed_unchanged(unstable_files: UnstableFiles) -> None:
    assert unstable_files.take_quiet(MIN_QUIET_SECONDS - 0.1) == set()
    assert unstable_files.take_quiet(MIN_QUIET_SECONDS) == {"log"}


def test_each_change_restarts_the_wait(unstable_files: UnstableFiles, tmp_path: Path) -> None:
    for step in range(1, 20):
        (tmp_path / "log").write_text("1" * (step + 1))
        assert unstable_files.take_quiet(step * 0.9) == set()
    assert unstable_files.take_quiet(19 * 0.9 + MIN_QUIET_SECONDS) == {"log"}


def test_a_file_that_changes_again_waits_longer(
    unstable_files: UnstableFiles,
) -> None:
    now, waits = 0.0, []
    for _ in range(9):
        before = now
        while not unstable_files.take_quiet(now):
            now += MIN_QUIET_SECONDS
        unstable_files.replace(["log"], now)
        waits.append(now - before)
    assert waits == [1, 2, 4, 8, 16, 32, MAX_QUIET_SECONDS, MAX_QUIET_SECONDS, MAX_QUIET_SECONDS]


def test_files_that_were_read_are_no_longer_tracked(unstable_files: UnstableFiles) -> None:
    unstable_files.replace([], MIN_QUIET_SECONDS)
    assert unstable_files.take_quiet(MAX_QUIET_SECONDS) == set()


def test_a_removed_file_becomes_quiet(unstable_files: UnstableFiles, tmp_path: Path) -> None:
    (tmp_path / "log").unlink()
    assert unstable_files.take_quiet(1.0) == set()
    assert unstable_files.take_quiet(2.0) == {"log"}


def test_only_local_files_are_unstable(tree) -> None:
    problems = {
        "here": CHANGES_WHILE_READ,
        "there": CHANGES_WHILE_READ,
        "pipe": "it is a special file",
    }
    assert Report(problems=problems, local=tree("here! pipe!")).unstable_files == {"here"}

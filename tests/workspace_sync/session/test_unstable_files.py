"""Which files that changed while they were read are quiet; time is an argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_sync.errors import CHANGES_WHILE_READ
from hai_sync.session.options import Report
from hai_sync.session.unstable_files import MAX_QUIET_SECONDS, MIN_QUIET_SECONDS, UnstableFiles


@pytest.fixture
def unstable_files(tmp_path: Path) -> UnstableFiles:
    """One file, which a sync left alone at 0 and a look has seen since."""
    (tmp_path / "log").write_text("1")
    found = UnstableFiles(tmp_path)
    found.replace(["log"], 0.0)
    assert found.take_quiet(0.0) == set()
    return found


def test_a_file_is_quiet_once_it_has_stayed_the_same(unstable_files: UnstableFiles) -> None:
    assert unstable_files.take_quiet(MIN_QUIET_SECONDS - 0.1) == set()
    assert unstable_files.take_quiet(MIN_QUIET_SECONDS) == {"log"}


def test_each_change_begins_the_wait_anew(unstable_files: UnstableFiles, tmp_path: Path) -> None:
    for step in range(1, 20):
        (tmp_path / "log").write_text("1" * (step + 1))
        assert unstable_files.take_quiet(step * 0.9) == set()
    assert unstable_files.take_quiet(19 * 0.9 + MIN_QUIET_SECONDS) == {"log"}


def test_a_file_that_was_not_quiet_after_all_waits_longer_and_longer(
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


def test_what_the_next_sync_has_read_is_forgotten(unstable_files: UnstableFiles) -> None:
    unstable_files.replace([], MIN_QUIET_SECONDS)
    assert unstable_files.take_quiet(MAX_QUIET_SECONDS) == set()


def test_a_file_that_is_gone_is_quiet_too(unstable_files: UnstableFiles, tmp_path: Path) -> None:
    (tmp_path / "log").unlink()
    assert unstable_files.take_quiet(1.0) == set()
    assert unstable_files.take_quiet(2.0) == {"log"}


def test_only_files_here_that_change_are_unsettled(tree) -> None:
    problems = {
        "here": CHANGES_WHILE_READ,
        "there": CHANGES_WHILE_READ,
        "pipe": "it is a special file",
    }
    assert Report(problems=problems, local=tree("here! pipe!")).unstable_files == {"here"}

"""Which files that changed while they were read are quiet; time is an argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_sync.errors import CHANGING
from hai_sync.session.options import Report
from hai_sync.session.unstable_files import LONGEST, SHORTEST, Unsettled


@pytest.fixture
def unsettled(tmp_path: Path) -> Unsettled:
    """One file, which a sync left alone at 0 and a look has seen since."""
    (tmp_path / "log").write_text("1")
    found = Unsettled(tmp_path)
    found.replace(["log"], 0.0)
    assert found.take_quiet(0.0) == set()
    return found


def test_a_file_is_quiet_once_it_has_stayed_the_same(unsettled: Unsettled) -> None:
    assert unsettled.take_quiet(SHORTEST - 0.1) == set()
    assert unsettled.take_quiet(SHORTEST) == {"log"}


def test_each_change_begins_the_wait_anew(unsettled: Unsettled, tmp_path: Path) -> None:
    for step in range(1, 20):
        (tmp_path / "log").write_text("1" * (step + 1))
        assert unsettled.take_quiet(step * 0.9) == set()
    assert unsettled.take_quiet(19 * 0.9 + SHORTEST) == {"log"}


def test_a_file_that_was_not_quiet_after_all_waits_longer_and_longer(unsettled: Unsettled) -> None:
    now, waits = 0.0, []
    for _ in range(9):
        before = now
        while not unsettled.take_quiet(now):
            now += SHORTEST
        unsettled.replace(["log"], now)
        waits.append(now - before)
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST, LONGEST, LONGEST]


def test_what_the_next_sync_has_read_is_forgotten(unsettled: Unsettled) -> None:
    unsettled.replace([], SHORTEST)
    assert unsettled.take_quiet(LONGEST) == set()


def test_a_file_that_is_gone_is_quiet_too(unsettled: Unsettled, tmp_path: Path) -> None:
    (tmp_path / "log").unlink()
    assert unsettled.take_quiet(1.0) == set()
    assert unsettled.take_quiet(2.0) == {"log"}


def test_only_files_here_that_change_are_unsettled(tree) -> None:
    problems = {"here": CHANGING, "there": CHANGING, "pipe": "it is a special file"}
    assert Report(problems=problems, local=tree("here! pipe!")).unsettled == {"here"}

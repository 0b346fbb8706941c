"""Tests of guards: suspicious removals, and names that differ only in case."""

from __future__ import annotations

import pytest

from hai_sync.core.diff import diff
from hai_sync.core.guards import (
    find_case_collisions,
    find_suspicious_removals,
    without_paths,
    without_removals,
)

FILES = " ".join(f"f{number}={number}" for number in range(20))
OTHERS = " ".join(f"g{number}={number + 100}@7" for number in range(12))
FOLDERS = " ".join(f"d{number}/" for number in range(30))
LINKS = " ".join(f"l{number}>f{number}" for number in range(12))


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        pytest.param(FILES, FILES, 0, id="nothing goes"),
        pytest.param(FILES, "", 20, id="all files"),
        pytest.param(FILES, " ".join(FILES.split()[:9]), 11, id="more than half, more than ten"),
        pytest.param(FILES, " ".join(FILES.split()[:10]), 0, id="no more than half"),
        pytest.param(" ".join(FILES.split()[:10]), "", 0, id="no more than ten"),
        pytest.param(f"f=1 {FOLDERS}", "f=1", 0, id="directories do not count"),
        pytest.param(f"{FILES} {FOLDERS}", FOLDERS, 20, id="nor do those that stay"),
        pytest.param(LINKS, "", 12, id="links count as files"),
        pytest.param(OTHERS, OTHERS.replace("g", "moved"), 0, id="what moves does not go"),
    ],
)
def test_suspicious_removals_are_found(tree, before: str, after: str, count: int) -> None:
    changes = diff(tree(before), tree(after))
    assert len(find_suspicious_removals(changes, tree(before))) == count


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        pytest.param("a=1 b=1", "b=2 c=1", "b c", id="edits and new files stay"),
        pytest.param(
            "d/ d/x=1",
            "d=1",
            "",
            id="a file in the place of a directory would remove what is in it",
        ),
        pytest.param("d=1", "d/ d/x=1", "d d/x", id="a directory in the place of a file stays"),
        pytest.param("d/ d/e/", "", "", id="directories stay with what is in them"),
    ],
)
def test_changes_without_removals(tree, before: str, after: str, left: str) -> None:
    changes = without_removals(diff(tree(before), tree(after)))
    assert [change.path for change in changes] == left.split()


CASES = [
    pytest.param(
        "foo=1",
        "FOO=2 foo=1",
        {"FOO": "foo"},
        id="what is there stays, though it comes later by name",
    ),
    pytest.param("foo=1", "FOO=2 foo=3", {"FOO": "foo"}, id="also when it is edited"),
    pytest.param("", "A=1 a=2", {"a": "A"}, id="of two new ones the first stays"),
    pytest.param("foo=1", "FOO=1", {}, id="a rename to other case leaves one"),
    pytest.param("d/ d/x=1", "D/ D/x=1", {}, id="so does that of a directory"),
    pytest.param(
        "d/ d/x=1", "d/ d/x=1 D/ D/y=1", {"D": "d"}, id="a whole directory is one newcomer"
    ),
    pytest.param("d/ d/x=1", "d/ d/x=1 d/X=2", {"d/X": "d/x"}, id="inside a directory"),
    pytest.param("d/", "d/ D=1", {"D": "d"}, id="a file beside a directory"),
    pytest.param("l>x", "l>x L>x", {"L": "l"}, id="links count, too"),
    pytest.param(
        "A=1 a=2", "A=2 a=3", {}, id="twins that are there already are nobody's newcomers"
    ),
    pytest.param("é=1", "é=1 É=1", {"É": "é"}, id="letters beyond ASCII"),
    pytest.param("a=1", "a=1 b=1 c/ c/a=1", {}, id="other names"),
]


@pytest.mark.parametrize(("before", "after", "found"), CASES)
def test_case_collisions_are_found(tree, before: str, after: str, found: dict[str, str]) -> None:
    changes = diff(tree(before), tree(after))
    assert find_case_collisions(changes, tree(before)) == found


def test_paths_below_a_collision_are_dropped_too(tree) -> None:
    changes = diff(tree("d/"), tree("d/ D/ D/e/ D/e/f=1 Dx=1"))
    assert [change.path for change in without_paths(changes, {"D": "d"})] == ["Dx"]

"""Removals that may not be meant: what counts, and what is left of a plan without them."""

from __future__ import annotations

import pytest

from hai_sync.core.deletion_guard import suspicious_removals, without_removals
from hai_sync.core.diff import diff

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
def test_removals_are_doubtful(tree, before: str, after: str, count: int) -> None:
    changes = diff(tree(before), tree(after))
    assert len(suspicious_removals(changes, tree(before))) == count


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
def test_what_is_left_without_removals(tree, before: str, after: str, left: str) -> None:
    changes = without_removals(diff(tree(before), tree(after)))
    assert [change.path for change in changes] == left.split()

"""Tests of the rows that `ls` prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_sync.cli.commands.remote_files import Row, list_rows
from hai_sync.core.entry import DIRECTORY, Entry, Kind, parent


def _file(size: int) -> Entry:
    return Entry(Kind.FILE, b"d", size)


LINK = Entry(Kind.SYMLINK, target="train.py")
TREE = {
    "a": DIRECTORY,
    "a/b": DIRECTORY,
    "a/b/x": _file(3),
    "a/y": _file(4),
    "a-": DIRECTORY,
    "a-/z": _file(10),
    "empty": DIRECTORY,
    "latest": LINK,
    "train.py": _file(5),
}


@pytest.mark.parametrize(
    ("top", "recursive", "rows"),
    [
        pytest.param(
            "",
            False,
            [("a", 2, 7), ("a-", 1, 10), ("empty", 0, 0), ("latest", 0, 0), ("train.py", 1, 5)],
            id="the_root",
        ),
        pytest.param("a", False, [("a/b", 1, 3), ("a/y", 1, 4)], id="a_directory"),
        pytest.param("a", True, [("a/b", 1, 3), ("a/b/x", 1, 3), ("a/y", 1, 4)], id="all_below_it"),
        pytest.param("empty", True, [], id="nothing_in_it"),
        pytest.param("train.py", False, [("train.py", 1, 5)], id="a_file"),
        pytest.param("latest", True, [("latest", 0, 0)], id="a_link"),
        pytest.param("nowhere", False, [], id="nothing"),
    ],
)
def test_rows_of_a_directory(top: str, recursive: bool, rows: list[tuple[str, int, int]]) -> None:
    assert [
        (row.path, row.files, row.size) for row in list_rows(TREE, top, recursive=recursive)
    ] == rows


PARTS = st.lists(st.sampled_from("ab-"), min_size=1, max_size=4).map("/".join)


@given(st.dictionaries(PARTS, st.integers(1, 9)))
def test_a_directory_has_the_total_of_its_files(sizes: dict[str, int]) -> None:
    leaves = {p: n for p, n in sizes.items() if not any(q.startswith(p + "/") for q in sizes)}
    tree = {path: _file(size) for path, size in leaves.items()}
    for path in leaves:
        while path := parent(path):
            tree[path] = DIRECTORY
    rows: dict[str, Row] = {row.path: row for row in list_rows(tree, "", recursive=True)}
    assert rows.keys() == tree.keys()
    assert sum(row.size for row in list_rows(tree, "")) == sum(leaves.values())
    for path, row in rows.items():
        if row.entry == DIRECTORY:
            assert row.size == sum(each.size for each in list_rows(tree, path))
            assert row.files == sum(each.files for each in list_rows(tree, path))

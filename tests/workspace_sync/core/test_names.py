"""Tests which names can be synced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_sync.core.entry import DIRECTORY, Entry, Kind
from hai_sync.core.names import (
    case_folded,
    conflict_copy_name,
    link_error,
    path_error,
    tree_error,
)

FILE = Entry(Kind.FILE, b"1" * 32, 1)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="nothing"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("..", id="the parent"),
        pytest.param("a/../b", id="the parent in between"),
        pytest.param("a/./b", id="a dot"),
        pytest.param("a//b", id="an empty part"),
        pytest.param("a/", id="a slash at the end"),
        pytest.param("a\0b", id="NUL"),
        pytest.param("\udcff", id="not UTF-8"),
        pytest.param("e\u0301", id="decomposed"),
        pytest.param("x" * 256, id="a name of 256 bytes"),
        pytest.param("/".join(["x" * 200] * 20), id="4 019 bytes"),
        pytest.param("/".join("x" * 101), id="101 parts"),
    ],
)
def test_invalid_paths_are_refused(path: str) -> None:
    assert path_error(path)


@pytest.mark.parametrize("path", ["a", "a b", "...", "..a", "é", "文件", "a/b/c", "x" * 255])
def test_valid_paths_are_accepted(path: str) -> None:
    assert path_error(path) == ""


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("l", "a", True),
        ("d/l", "../a", True),
        ("d/l", "../../a", False),
        ("l", "..", False),
        ("l", "a/../..", False),
        ("l", "", False),
        ("l", "a\0b", False),
        ("d/e/l", "./../x", True),
    ],
)
def test_links_that_lead_out_are_refused(path: str, target: str, inside: bool) -> None:
    assert (link_error(path, target) == "") is inside


@given(st.text("ab./", max_size=12), st.text("ab./", max_size=12))
def test_an_accepted_link_resolves_inside(path: str, target: str) -> None:
    if path_error(path) == "" and link_error(path, target) == "" and not target.startswith("/"):
        depth = 0
        for part in [*path.split("/")[:-1], *target.split("/")]:
            depth += -1 if part == ".." else part not in ("", ".")
            assert depth >= 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Makefile", "makefile", True),
        ("a/B", "A/b", True),
        ("ß", "ss", True),
        ("É", "é", True),
        ("a", "b", False),
    ],
)
def test_case_is_folded(one: str, other: str, same: bool) -> None:
    assert (case_folded(one) == case_folded(other)) is same


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param({"a/b": FILE}, id="a file without its directory"),
        pytest.param({"a": FILE, "a/b": FILE}, id="a file in a file"),
        pytest.param({"a": Entry(Kind.SYMLINK, target="."), "a/b": FILE}, id="a file in a link"),
        pytest.param({"../x": FILE}, id="outside"),
        pytest.param({".hfai": DIRECTORY}, id="what is ours"),
        pytest.param({"l": Entry(Kind.SYMLINK, target="../x")}, id="a link out of it"),
    ],
)
def test_invalid_trees_are_refused(tree: dict[str, Entry]) -> None:
    assert tree_error(tree)


def test_a_valid_tree_is_accepted() -> None:
    assert tree_error({"a": DIRECTORY, "a/b": FILE, "l": Entry(Kind.SYMLINK, target="a")}) == ""


def test_conflict_copies_are_named_by_content_and_stay_short() -> None:
    assert conflict_copy_name("d/a.py", FILE, lambda p: False) == "d/a.conflict-31313131.py"
    assert conflict_copy_name(".bashrc", FILE, lambda p: False) == ".bashrc.conflict-31313131"
    assert len(conflict_copy_name("文" * 85, FILE, lambda p: False).encode()) <= 255
    assert len(conflict_copy_name("x." + "a" * 240, FILE, lambda p: False).encode()) <= 255

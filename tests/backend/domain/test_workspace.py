"""Valid paths of a tree, targets of links, and references of tasks."""

from __future__ import annotations

from posixpath import normpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.workspace import (
    Entry,
    EntryKind,
    Reference,
    folders_above,
    parse_reference,
    path_problem,
    pushed_problem,
    target_problem,
)

HOSTILE = st.lists(st.sampled_from(["/", ".", "..", "a", "\0", "é", "e\u0301", "-"])).map("".join)


@given(HOSTILE)
def test_a_path_that_is_taken_stays_below_the_root(path: str) -> None:
    if not path_problem(path):
        assert normpath(path) == path
        assert not path.startswith(("/", "../"))
        assert path not in ("", ".", "..")
        assert "\0" not in path


@given(HOSTILE.filter(lambda path: not path_problem(path)), HOSTILE)
def test_a_link_that_is_taken_leads_to_something_below_the_root(path: str, target: str) -> None:
    if not target_problem(path, target):
        led = normpath("/root/" + path.rpartition("/")[0] + "/" + target)
        assert (led + "/").startswith("/root/")


@pytest.mark.parametrize(
    ("path", "target", "allowed"),
    [
        pytest.param("l", "a", True, id="inside"),
        pytest.param("l", "/data", True, id="an absolute path, which nobody follows here"),
        pytest.param("../l", "/data", False, id="at a path outside"),
        pytest.param(".hfai/l", "/data", False, id="in what is private to each side"),
        pytest.param("l", "../data", False, id="outside by a relative path"),
        pytest.param("l", "/a\0b", False, id="a NUL"),
        pytest.param("l", "", False, id="nowhere"),
    ],
)
def test_links_that_a_client_may_push(path: str, target: str, allowed: bool) -> None:
    entry = Entry(path, EntryKind.SYMLINK, target=target)
    assert (pushed_problem(entry) == "") is allowed


@pytest.mark.parametrize(
    "path", [".hidden", "..a", "a..", "...", "a b", "-", "é", "a/b/c", "a\nb", "x" * 255]
)
def test_unusual_names_are_names(path: str) -> None:
    assert path_problem(path) == ""


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("/shared/me", None),
        ("", None),
        ("haiworkspace://w", Reference("w")),
        ("haiworkspace://w@12", Reference("w", 12)),
        ("haiworkspace://w@12/a/b", Reference("w", 12, "a/b")),
        ("haiworkspace://w/a/", Reference("w", 0, "a")),
    ],
)
def test_references_are_read_and_written(text: str, reference: Reference | None) -> None:
    found = parse_reference(text)
    assert found == reference
    if found is not None:
        assert parse_reference(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "haiworkspace://",
        "haiworkspace:///a",
        "haiworkspace://.w",
        "haiworkspace://w@",
        "haiworkspace://w@-1",
        "haiworkspace://w@1/../x",
        "haiworkspace://w@1@2",
    ],
)
def test_unknown_attributes_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must look like"):
        parse_reference(text)


def test_folders_above_come_outer_first() -> None:
    assert folders_above("a/b/c") == ["a", "a/b"]
    assert folders_above("a") == []

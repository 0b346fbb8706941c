"""Which new names a file system that ignores case cannot hold."""

from __future__ import annotations

import pytest

from hai_sync.core.case_conflicts import colliding_paths, without_paths
from hai_sync.core.diff import diff

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
def test_newcomers(tree, before: str, after: str, found: dict[str, str]) -> None:
    changes = diff(tree(before), tree(after))
    assert colliding_paths(changes, tree(before)) == found


def test_what_lies_in_a_newcomer_goes_with_it(tree) -> None:
    changes = diff(tree("d/"), tree("d/ D/ D/e/ D/e/f=1 Dx=1"))
    assert [change.path for change in without_paths(changes, {"D": "d"})] == ["Dx"]

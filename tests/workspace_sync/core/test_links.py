"""Tests which links lead out, and which of them are skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_sync.core.links import Links, is_outward, skip_reason


@pytest.mark.parametrize(
    ("path", "target", "out"),
    [
        ("l", "a", False),
        ("l", "..a/b", False),
        ("d/l", "../a", False),
        ("d/l", "../../a", True),
        ("l", "a/../..", True),
        ("d/e/l", "./../x", False),
        ("l", "/etc/passwd", True),
    ],
)
def test_outward_links_are_recognized(path: str, target: str, out: bool) -> None:
    assert is_outward(path, target) is out


@pytest.mark.parametrize(
    ("links", "target", "on_cluster", "kept"),
    [
        (Links.AUTO, "/data", True, True),
        (Links.AUTO, "/data", False, False),
        (Links.AUTO, "../data", False, False),
        (Links.KEEP, "/data", False, True),
        (Links.KEEP, "../data", True, False),
        (Links.SKIP, "/data", True, False),
        (Links.COPY, "/data", True, False),
    ],
)
def test_outward_links_are_kept_or_skipped(
    links: Links, target: str, on_cluster: bool, kept: bool
) -> None:
    why = skip_reason(links, target, on_cluster)
    assert (why == "") is kept
    assert kept or target in why


@given(st.text("ab./", min_size=1, max_size=12), st.text("ab./", max_size=12))
def test_a_link_that_stays_inside_never_passes_above_the_root(path: str, target: str) -> None:
    depth = path.count("/")
    steps = []
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        steps.append(depth)
    assert is_outward(path, target) is (target.startswith("/") or min(steps) < 0)

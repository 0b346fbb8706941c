"""A disk that becomes full during a build: nothing incomplete is left, and a retry works after space was freed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haienv.store.layout import Home
from tests.haienv.conftest import USER, Haienv
from tests.small_disk import fill, small_disk

MB = 1 << 20


@pytest.fixture
def small(
    haienv: Haienv,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wheelhouse: Path,
    make_wheel: Callable[..., Path],
) -> Iterator[Haienv]:
    """A root and a cache of wheels on a disk of 96 MB; the package `large` has 32 MB and cannot be compressed."""
    large = make_wheel("large", "1.0", more={"large/data.txt": os.urandom(16 * MB).hex()})
    monkeypatch.setenv("UV_FIND_LINKS", f"{wheelhouse},{large.parent}")
    with small_disk(tmp_path / "disk", 96) as disk:
        monkeypatch.setenv("HAIENV_HOME", str(disk / "root"))
        monkeypatch.setenv("UV_CACHE_DIR", str(disk / "cache"))
        yield Haienv(Home(disk / "root", USER), monkeypatch)


@pytest.mark.parametrize(
    "remaining_bytes",
    [
        pytest.param(MB, id="the reserve"),
        pytest.param(6 * MB, id="soon"),
        pytest.param(24 * MB, id="in the middle of a file"),
    ],
)
def test_a_full_disk_leaves_nothing_incomplete(small: Haienv, remaining_bytes: int) -> None:
    """The error names the disk, and the same command succeeds after space was freed."""
    small.ok("create good --no_extend fast==1.0")
    disk = small.home.root.parent
    before = snapshot(small)
    filler = fill(disk, but=remaining_bytes)
    for line in ("create other --no_extend large --json", "install good large --json"):
        result = small(line)
        assert (result.code, result.error["reason"]) == (1, "NO_ROOM"), result.err
        assert str(disk) in result.error["message"]
        assert snapshot(small) == before
    assert small.run("good", "import fast; print(fast.VERSION)") == "1.0"
    filler.unlink()
    small.ok("create other --no_extend large")
    assert small.run("other", "import large; print(large.VERSION)") == "1.0"
    assert "all is well" in small.ok("doctor").err


def snapshot(haienv: Haienv) -> set[str]:
    """Return the environments and the build directories."""
    root = haienv.home.root
    return {
        str(path.relative_to(root))
        for pattern in ("*/*", "*/.building/*")
        for path in root.glob(pattern)
    }

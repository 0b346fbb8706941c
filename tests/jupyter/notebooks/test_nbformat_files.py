"""Files replaced atomically: their permissions, and the state after an error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai_jupyter.notebooks import nbformat_files


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """New files are for the group, too."""
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("there", "like", "wanted"),
    [
        pytest.param(None, None, 0o640, id="new"),
        pytest.param(0o600, None, 0o600, id="private before"),
        pytest.param(0o664, None, 0o664, id="of all before"),
        pytest.param(0o600, 0o644, 0o600, id="private before, like one that is not"),
        pytest.param(None, 0o600, 0o600, id="new, like a private one"),
    ],
)
def test_a_file_is_as_readable_as_before(
    tmp_path: Path, there: int | None, like: int | None, wanted: int
) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    for path, mode in ((file, there), (other, like)):
        if mode is not None:
            path.write_text("before")
            path.chmod(mode)
    nbformat_files.replace_file(b"now", file, like=other if like else None)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"now", wanted)


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    file, private = tmp_path / "a", tmp_path / "b"
    private.write_text("mine")
    file.symlink_to(private)
    nbformat_files.replace_file(b"now", file)
    assert (file.read_text(), file.is_symlink(), private.read_text()) == ("now", False, "mine")


def test_what_can_not_be_put_there_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        nbformat_files.replace_file(b"now", tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]

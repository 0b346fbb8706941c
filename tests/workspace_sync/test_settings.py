"""Tests of the settings of a workspace, in a file that people edit too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hai_sync.settings import NAMES, read_settings, save_setting
from hai_sync.workspace_dir import WorkspaceDir, create_workspace, find_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceDir:
    return create_workspace(tmp_path, "w")[0]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        pytest.param("jobs: 2", {"jobs": "2"}, id="plain"),
        pytest.param("jobs: '2'\nbwlimit: \"2M\"  ", {"jobs": "2", "bwlimit": "2M"}, id="quoted"),
        pytest.param("conflict: newer # ours", {"conflict": "newer"}, id="with a comment"),
        pytest.param("conflict: 'newer' # ours", {"conflict": "newer"}, id="and quoted"),
        pytest.param("bwlimit: 2 M", {"bwlimit": "2 M"}, id="what its option will refuse"),
        pytest.param("jobs:", {"jobs": ""}, id="nothing"),
        pytest.param("# jobs: 2\n  mode: push", {}, id="no line of ours"),
        pytest.param("token: abc\nforce: true\nprofile: x", {}, id="what cannot be set"),
    ],
)
def test_settings_are_read_from_the_lines_of_the_file(
    workspace: WorkspaceDir, lines: str, found: dict[str, str]
) -> None:
    with (workspace.private_dir / "workspace.yml").open("a") as file:
        file.write(lines + "\n")
    assert read_settings(workspace) == found


def test_concurrent_writers_take_turns(workspace: WorkspaceDir) -> None:
    def keep(name: str) -> None:
        for number in range(150):
            save_setting(workspace, name, str(number))
            assert read_settings(workspace)[name] == str(number)

    with ThreadPoolExecutor() as threads:
        list(threads.map(keep, NAMES))
    assert find_workspace(workspace.root) == workspace


def test_a_full_disk_keeps_the_file_and_names_it(workspace: WorkspaceDir) -> None:
    (workspace.private_dir / "workspace.yml.new").symlink_to("/dev/full")
    before = (workspace.private_dir / "workspace.yml").read_text()
    with pytest.raises(OSError, match=r"No space left on device: '.*/\.hfai/workspace\.yml'"):
        save_setting(workspace, "jobs", "2")
    assert (workspace.private_dir / "workspace.yml").read_text() == before

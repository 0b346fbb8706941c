"""The platform's directories in tasks. They are created before ranks start, and owned by the uid of the programs."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from hai_backend.domain.shared_dirs import SharedDirectory, checkpoints_of
from hai_backend.launch.shared_dirs import SharedDirectories

PODS = {"shared_volume": "pvc:hai-shared", "default_uid": 20000}
ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("pods", "seen"),
    [
        pytest.param({}, True, id="processes"),
        pytest.param(PODS, True, id="pods"),
        pytest.param({"agent_path": "/opt/hai"}, False, id="pods that have no volume"),
    ],
)
def test_a_directory_is_seen_where_the_server_has_it_or_not_at_all(
    tmp_path: Path, pods: dict[str, object], seen: bool
) -> None:
    found = SharedDirectories(tmp_path, pods).path_in_rank(checkpoints_of(7))
    assert found == (str(tmp_path / "checkpoints" / "7") if seen else "")


@ROOT
@pytest.mark.parametrize(
    ("uid", "gid", "owner"),
    [
        pytest.param(2001, 3001, (2001, 3001), id="of a user"),
        pytest.param(2001, 0, (2001, 2001), id="whose group is the uid"),
        pytest.param(0, 0, (20000, 20000), id="without a uid"),
    ],
)
def test_a_directory_belongs_to_whom_the_pods_run_as(
    tmp_path: Path, uid: int, gid: int, owner: tuple[int, int]
) -> None:
    shared = SharedDirectories(tmp_path, PODS)
    for _ in range(2):  # each run requests it
        shared.make(checkpoints_of(7), uid, gid)
    path = tmp_path / "checkpoints" / "7"
    assert (path.stat().st_uid, path.stat().st_gid) == owner
    assert (mode(path), mode(path.parent)) == (0o700, 0o711)


def test_a_server_that_can_give_nothing_away_lets_the_mount_guard_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refused)
    SharedDirectories(tmp_path, PODS).make(checkpoints_of(7), 54321, 54321)
    assert mode(tmp_path / "checkpoints" / "7") == 0o777


@pytest.mark.parametrize(
    ("pods", "directory"),
    [
        pytest.param({}, checkpoints_of(7), id="of a process, which runs as the server"),
        pytest.param(PODS, SharedDirectory("environments/x", read_only=True), id="only read"),
    ],
)
def test_a_directory_that_no_pod_writes_stays_the_servers(
    tmp_path: Path, pods: dict[str, object], directory: SharedDirectory
) -> None:
    SharedDirectories(tmp_path, pods).make(directory, 54321, 54321)
    assert (tmp_path / directory.below).stat().st_uid == os.getuid()
    assert mode(tmp_path / directory.below) == 0o700


def test_tasks_see_all_environments_and_write_their_users_own(tmp_path: Path) -> None:
    shared, root = SharedDirectories(tmp_path, PODS), tmp_path / "environments"
    everybodys, own = shared.environments(root, "ada")
    assert (everybodys.below, everybodys.read_only) == ("environments", True)
    assert (own.below, own.read_only) == ("environments/ada", False)
    for directory in (everybodys, own):
        shared.make(directory, 2001, 2001)
    assert mode(root / "ada") == (0o755 if os.getuid() == 0 else 0o777)
    assert root.stat().st_uid == os.getuid()


@pytest.mark.parametrize(
    ("pods", "root", "user"),
    [
        pytest.param({}, "environments", "ada", id="processes see all files anyway"),
        pytest.param({"agent_path": "/x"}, "environments", "ada", id="pods without the volume"),
        pytest.param(PODS, "/srv/environments", "ada", id="another place, which is mounted"),
        pytest.param(PODS, "environments", "../root", id="a name that is no directory"),
        pytest.param(PODS, "environments", ".layers", id="a name of haienv's own"),
    ],
)
def test_what_is_no_part_of_shared_is_not_lent(
    tmp_path: Path, pods: dict[str, object], root: str, user: str
) -> None:
    assert SharedDirectories(tmp_path, pods).environments(tmp_path / root, user) == ()


@pytest.mark.parametrize(
    ("pods", "root", "seen"),
    [
        pytest.param({}, "environments", True, id="processes"),
        pytest.param(PODS, "environments", True, id="pods"),
        pytest.param({"agent_path": "/x"}, "environments", False, id="pods without the volume"),
        pytest.param({"agent_path": "/x"}, "/srv/environments", True, id="mounted by a rule"),
    ],
)
def test_where_environments_are_seen(
    tmp_path: Path, pods: dict[str, object], root: str, seen: bool
) -> None:
    assert SharedDirectories(tmp_path, pods).is_visible(tmp_path / root) is seen


def test_tasks_that_start_at_the_same_time_make_what_they_share_once(tmp_path: Path) -> None:
    def make(root: Path, task: int) -> None:
        begin.wait()
        SharedDirectories(root, {}).make(checkpoints_of(task), 0, 0)

    with ThreadPoolExecutor(4) as threads:
        for attempt in range(50):
            begin, root = Barrier(4), tmp_path / str(attempt)
            list(threads.map(make, [root] * 4, range(4)))
            assert mode(root / "checkpoints") == 0o711
            assert {mode(root / "checkpoints" / str(task)) for task in range(4)} == {0o700}

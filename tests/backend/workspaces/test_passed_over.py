"""What programs make on the cluster and no revision can have is told with the tree, and why."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hai.client.errors import NotFound
from hai_backend.domain import workspace
from hai_backend.domain.workspace import PassedOver
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import tree_scan

NFD = "cafe\u0301"


async def skipped(pusher, revision: int = 0) -> dict[str, str]:
    """Why which paths were passed over."""
    answers = pusher.client.workspaces.tree(pusher.name, revision)
    return {each.path: each.reason async for answer in answers for each in answer.passed_over}


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    NFD: (lambda at: at.write_text("1"), "NFC"),
    "pipe": (os.mkfifo, "special file"),
    "absolute": (lambda at: at.symlink_to("/etc/passwd"), "absolute path"),
    "outward": (lambda at: at.symlink_to("../../x"), "leads out"),
    "odd link": (lambda at: os.symlink(b"caf\xe9", at), "not UTF-8"),
}


@pytest.mark.parametrize("path", CASES)
async def test_it_is_told_at_each_look_and_the_rest_is_a_revision(here, path: str) -> None:
    make_it, why = CASES[path]
    pusher = await here.pusher()
    make_it(here.files() / path)
    (here.files() / "good").write_text("1")
    for _ in range(2):
        assert list(await pusher.tree()) == ["good"]
        found = await skipped(pusher)
        assert list(found) == [path]
        assert why in found[path]
    assert await skipped(pusher, 1) == {}  # who asks for a revision looks at no files


async def test_a_directory_of_such_a_name_is_told_once(here) -> None:
    pusher = await here.pusher()
    folder = os.fsdecode(b"caf\xe9")
    (here.files() / folder / "inner").mkdir(parents=True)
    (here.files() / folder / "inner/file").write_text("1")
    assert await skipped(pusher) == {r"caf\udce9": "has a name that is not UTF-8"}


async def test_what_is_private_to_the_cluster_is_not(here) -> None:
    pusher = await here.pusher()
    (here.files() / ".hfai").mkdir()
    os.mkfifo(here.files() / ".hfai/pipe")
    assert await skipped(pusher) == {}
    with pytest.raises(NotFound):
        await skipped(pusher, 7)


async def test_of_so_many_as_nobody_reads_the_number_is_told(here, monkeypatch) -> None:
    monkeypatch.setattr(workspace, "PASSED_OVER", 3)
    pusher = await here.pusher()
    for number in range(5):
        (here.files() / f"link{number}").symlink_to("/")
    answers = [answer async for answer in pusher.client.workspaces.tree("w")]
    assert sum(len(answer.passed_over) for answer in answers) == 3
    assert answers[-1].more_passed_over == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_told_and_stays_in_the_tree(tmp_path: Path) -> None:
    make_directories(tmp_path / "w", 0)
    files, found = WorkspaceFiles(tmp_path / "w", 0), PassedOver()
    (files.tree / "d").mkdir()
    for path in ("f", "d/f"):
        (files.tree / path).write_text("1")
    assert tree_scan.scan(files, Author("tasks", 1.0)).files == 2
    (files.tree / "f").write_text("2")
    for path in ("f", "d"):
        (files.tree / path).chmod(0)
    assert tree_scan.scan(files, Author("tasks", 2.0), found).files == 2
    assert found.reasons == {"d": "cannot be read", "f": "cannot be read"}
    (files.tree / "d").chmod(0o700)
    files.close()

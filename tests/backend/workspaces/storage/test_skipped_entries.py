"""Entries of programs that no revision can contain are reported with the tree, with the reason."""

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


async def get_skipped(pusher, revision: int = 0) -> dict[str, str]:
    """Return the reason for each skipped path."""
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
async def test_skipped_entries_are_reported_at_each_scan_and_the_rest_is_committed(
    service, path: str
) -> None:
    create, reason = CASES[path]
    pusher = await service.pusher()
    create(service.files() / path)
    (service.files() / "good").write_text("1")
    for _ in range(2):
        assert list(await pusher.tree()) == ["good"]
        found = await get_skipped(pusher)
        assert list(found) == [path]
        assert reason in found[path]
    assert await get_skipped(pusher, 1) == {}  # a request for a revision causes no scan


async def test_a_directory_with_an_invalid_name_is_reported_once(service) -> None:
    pusher = await service.pusher()
    folder = os.fsdecode(b"caf\xe9")
    (service.files() / folder / "inner").mkdir(parents=True)
    (service.files() / folder / "inner/file").write_text("1")
    assert await get_skipped(pusher) == {r"caf\udce9": "has a name that is not UTF-8"}


async def test_private_entries_of_the_server_are_not_reported(service) -> None:
    pusher = await service.pusher()
    (service.files() / ".hfai").mkdir()
    os.mkfifo(service.files() / ".hfai/pipe")
    assert await get_skipped(pusher) == {}
    with pytest.raises(NotFound):
        await get_skipped(pusher, 7)


async def test_of_many_skipped_entries_the_number_is_reported(service, monkeypatch) -> None:
    monkeypatch.setattr(workspace, "PASSED_OVER", 3)
    pusher = await service.pusher()
    for number in range(5):
        (service.files() / f"link{number}").symlink_to("/")
    answers = [answer async for answer in pusher.client.workspaces.tree("w")]
    assert sum(len(answer.passed_over) for answer in answers) == 3
    assert answers[-1].more_passed_over == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_entries_are_reported_and_stay_in_the_tree(tmp_path: Path) -> None:
    make_directories(tmp_path / "w", 0)
    files, found = WorkspaceFiles(tmp_path / "w", 0), PassedOver()
    (files.tree / "d").mkdir()
    for path in ("f", "d/f"):
        (files.tree / path).write_text("1")
    assert tree_scan.scan_tree(files, Author("tasks", 1.0)).files == 2
    (files.tree / "f").write_text("2")
    for path in ("f", "d"):
        (files.tree / path).chmod(0)
    assert tree_scan.scan_tree(files, Author("tasks", 2.0), found).files == 2
    assert found.reasons == {"d": "cannot be read", "f": "cannot be read"}
    (files.tree / "d").chmod(0o700)
    files.close()

"""Concurrent commands: one of two creates wins, no change is lost, and readers see complete environments."""

from __future__ import annotations

import errno
import io
import os
import platform
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout
from typing import Any

import pytest

from haienv.cli.main import main
from haienv.doctor import find_problems, repair
from haienv.store.layout import Home
from haienv.store.registry import list_environments_in_root
from haienv.store.transaction import build_directory, hold_lease


def run_concurrently(lines: Sequence[str]) -> list[int]:
    """Run command lines concurrently, and return their exit codes."""
    find_children = []
    for line in lines:
        child = os.fork()
        if child == 0:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                code = main(line.split())
            os._exit(code)
        find_children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in find_children]


def test_one_of_concurrent_creates_wins(haienv: Any) -> None:
    codes = run_concurrently(["create one --no_extend fast", "create one --no_extend plain"] * 2)
    assert sorted(codes) == [0, 1, 1, 1]
    assert haienv.ok("list --names").out == "one\n"
    haienv.ok("verify one")
    haienv.ok("doctor --fix")
    assert len([*(haienv.home.user_dir / ".layers").iterdir()]) == 1


def test_no_change_is_lost(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    packages = ["fast", "plain", "tool"]
    codes = run_concurrently([f"install one {name}" for name in packages])
    installed = set(haienv.ok("freeze one --json").json)
    assert installed == {name for name, code in zip(packages, codes, strict=True) if code == 0}
    assert installed


def test_concurrent_appends_are_all_kept(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    assert run_concurrently([f"config append one tags t{n}" for n in range(5)]) == [0] * 5
    assert set(haienv.ok("config show one --json").json["tags"]) == {f"t{n}" for n in range(5)}


def test_readers_see_complete_environments_only(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast")
    child = os.fork()
    if child == 0:
        for n in range(4):
            run_concurrently([f"clone base e{n}", f"create f{n} --extend base plain"])
            run_concurrently([f"remove e{n} f{n} --yes"])
        os._exit(0)
    reads = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert [each.fault for each in list_environments_in_root(haienv.home) if each.fault] == []
        reads += 1
    assert reads > 10


def test_doctor_keeps_a_layer_that_came_into_use(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast")
    layer = haienv.get("one").path
    shutil.rmtree(haienv.home.user_dir / "one")  # as if the process of `create` had been killed
    (layer / "used").unlink()
    found = find_problems(haienv.home)
    assert [each.path for each in found] == [str(layer)]
    haienv.ok("create two --no_extend fast")
    assert haienv.get("two").path == layer
    repair(haienv.home, found)
    assert haienv.run("two", "import fast; print(fast.VERSION)") == "2.0"


@pytest.mark.parametrize(
    ("machine", "findings_count"),
    [
        pytest.param("{here}", 1, id="here, and it is dead"),
        pytest.param("another-host", 0, id="another host"),
        pytest.param("{name}.1", 0, id="a container that has the name of this host"),
    ],
)
def test_only_directories_of_dead_processes_are_leftovers(
    haienv: Any, machine: str, findings_count: int
) -> None:
    haienv.ok("create one --no_extend")
    with build_directory(haienv.home) as work:
        here = work.name.rsplit("-", 2)[0]
    name = machine.format(here=here, name=platform.node())
    (haienv.home.user_dir / ".building" / f"{name}-{2**22 + 1}-00000000").mkdir()
    assert len(find_problems(haienv.home)) == findings_count


@pytest.mark.parametrize("line", ["remove one --yes", "rename one three"])
def test_a_concurrent_removal_is_reported(
    haienv: Any, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    from haienv import operations
    from haienv.layers import gc

    def late(home: Home) -> AbstractContextManager[None]:
        haienv.get("one").directory.rename(home.user_dir / "two")
        return hold_lease(home)

    haienv.ok("create one --no_extend")
    for module in (operations, gc):
        monkeypatch.setattr(module, "hold_lease", late)
    refused = haienv(f"{line} --json")
    assert (refused.code, refused.error["reason"]) == (3, "NOT_FOUND")
    assert not list(haienv.home.user_dir.glob(".trash/*"))


def test_the_lease_of_a_dead_process_is_acquired(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    child = os.fork()
    if child == 0:
        with hold_lease(haienv.home):
            os._exit(9)
    os.waitpid(child, 0)
    haienv.ok("clone one two")


def test_an_empty_lease_is_cleared(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    (haienv.home.user_dir / ".lock").touch()
    haienv.ok("config set one description x")
    assert not list(haienv.home.user_dir.glob(".lock*"))


def test_a_full_disk_is_reported_with_a_hint(haienv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    haienv.ok("create one --no_extend")
    monkeypatch.setattr("filelock.SoftFileLease.acquire", full)
    refused = haienv("remove one --yes --json")
    assert (refused.code, refused.error["reason"]) == (1, "NO_ROOM")
    assert f"rm -r '{haienv.home.user_dir / '.cache'}'" in refused.error["hint"]

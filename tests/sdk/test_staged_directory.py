"""A library fills a directory in memory, which becomes durable as one checkpoint, also after a kill at any point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hai.task import env, sharded_checkpoint, staged_directory, staging, staging_notes

FILES = {"state.json": b"{}", "adapter/model.bin": bytes(range(256)) * 64, "empty": b""}


@pytest.fixture
def stage(outside, tmp_path: Path) -> Path:
    path = tmp_path / "memory" / "7"
    path.mkdir(parents=True)
    outside.setenv(env.STAGING_DIR, str(path))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "m"


def fill(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def save(target: Path, step: int = 3) -> None:
    memory = staged_directory.create(1000, target)
    assert memory is not None
    fill(memory.path / "checkpoint")
    memory.stage(memory.path / "checkpoint", target, step, keep=2)


def test_files_become_durable_as_one_directory(stage, target):
    save(target)
    assert sorted(path.suffix for path in stage.iterdir()) == [".data"] * 3 + [".json"]
    assert sharded_checkpoint.published(target) == []
    assert staging.write_out_all(stage) == 1
    saved = sharded_checkpoint.latest_complete(target)
    assert saved is not None
    assert (saved.step, content(saved.path)) == (3, FILES)
    assert list(stage.iterdir()) == []


def test_a_directory_that_is_filled_stays_and_that_of_a_killed_program_is_removed(stage, target):
    code = (
        "import os, pathlib, signal\n"
        "from hai.task import staged_directory\n"
        "memory = staged_directory.create(1000, pathlib.Path('m'))\n"
        "(memory.path / 'half').write_bytes(bytes(1000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    memory = staged_directory.create(1000, target)
    assert memory is not None
    assert len(list(stage.iterdir())) == 2
    staging.remove_unused(stage)
    assert list(stage.iterdir()) == [memory.path]
    memory.discard()
    assert list(stage.iterdir()) == []


@pytest.mark.parametrize("limit", [1, 999])
def test_what_does_not_fit_gets_no_memory(stage, outside, capsys, limit):
    outside.setenv(env.STAGING_BYTES, str(limit))
    assert staged_directory.create(1000, Path("m")) is None
    assert f"1000 bytes do not fit into {limit} bytes" in capsys.readouterr().err


def test_a_task_without_staging_gets_no_memory(outside):
    outside.delenv(env.STAGING_DIR, raising=False)
    assert staged_directory.create(1, Path("m")) is None


_POINTS = ["fcntl.flock", "pathlib.Path.rename", "pathlib.Path.unlink", "shutil.rmtree"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("point", _POINTS)
def test_a_kill_at_any_point_leaves_a_whole_checkpoint_or_none(
    stage, target, capsys, point, number, moment
):
    code = (
        "import fcntl, os, pathlib, shutil, signal\n"
        "from tests.sdk.test_staged_directory import save, staging\n"
        f"real, calls = {point}, []\n"
        "def deadly(*a, **k):\n"
        "    calls.append(a)\n"
        f"    if len(calls) <= {number}: return real(*a, **k)\n"
        f"    if {moment!r} == 'after': real(*a, **k)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{point} = deadly\n"
        f"save(pathlib.Path({str(target)!r}))\n"
        f"staging.write_out_all(pathlib.Path({str(stage)!r}))"
    )
    code = f"import sys; sys.path.insert(0, {os.getcwd()!r})\n{code}"
    killed = subprocess.run([sys.executable, "-c", code], check=False).returncode
    assert killed in (0, -signal.SIGKILL)
    staging.remove_unused(stage)
    staging.write_out_all(stage, target)
    saved = sharded_checkpoint.latest_complete(target)
    assert saved is not None or killed
    assert saved is None or content(saved.path) == FILES
    assert staging_notes.find_lost(target, sharded_checkpoint.published(target)) == []
    assert {path.suffix for path in stage.iterdir()} <= {".part"}  # removed a minute later

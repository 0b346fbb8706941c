"""Directories of sharded checkpoints: publishing, pruning, locks, and what is left after a kill."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hai.task import checkpoint, checkpoint_files, env, sharded_checkpoint
from hai.task.sharded_checkpoint import MANIFEST, UnfinishedCheckpoint, latest, published


@pytest.fixture
def target(outside, tmp_path: Path) -> Path:
    outside.setenv(env.CHECKPOINT_DIR, str(tmp_path / "kept"))
    return checkpoint_files.target_of("m")


def save(target: Path, step: int, content: bytes = b"", keep: int = 2):
    unfinished = UnfinishedCheckpoint(target, step)
    (unfinished.path / "rank00000.bin").write_bytes(content)
    return unfinished.publish(b"manifest of %d" % step + content, keep)


def steps(target: Path) -> list[int]:
    return [found.step for found in published(target)]


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.glob(".*"))


def test_what_was_published_is_latest(target):
    assert latest(target) is None
    saved = save(target, 3, b"weights")
    assert latest(target) == (saved, b"manifest of 3weights")
    assert (saved.path / "rank00000.bin").read_bytes() == b"weights"
    assert saved.digest == hashlib.sha256(b"manifest of 3weights").hexdigest()
    assert saved.path.parent == checkpoint.directory()


def test_the_newest_are_kept(target):
    for step in range(5):
        save(target, step, keep=3)
    assert steps(target) == [2, 3, 4]
    assert leftovers(target) == []


def test_a_second_save_of_a_step_replaces_the_first(target):
    save(target, 5, b"first")
    save(target, 5, b"second")
    assert steps(target) == [5]
    assert latest(target)[1] == b"manifest of 5second"


def test_going_back_sets_later_steps_aside(target, capsys):
    for step in (10, 20, 15):
        save(target, step)
    assert steps(target) == [10, 15]
    assert "is of a later step than 15" in capsys.readouterr().err
    assert len(list(target.parent.glob("m.000000000020.*.dcp.abandoned"))) == 1


def test_one_step_can_be_asked_for(target):
    for step in (1, 2):
        save(target, step)
    assert latest(target, step=1)[0].step == 1
    assert latest(target, step=3) is None


@pytest.mark.parametrize("content", [b"manifest of 7", None], ids=["changed", "missing"])
def test_a_damaged_manifest_is_set_aside(target, capsys, content):
    save(target, 1)
    path = save(target, 2).path / MANIFEST
    path.write_bytes(content) if content else path.unlink()
    assert latest(target)[0].step == 1
    assert "does not match its digest: it is set aside as .damaged" in capsys.readouterr().err
    assert steps(target) == [1]


def test_checkpoints_of_one_rank_and_of_all_do_not_meddle(target):
    checkpoint.save_bytes("m", b"one file", step=9, keep=1)
    save(target, 1, keep=1)
    save(target.with_name("m.ema"), 2, keep=1)
    assert checkpoint.latest("m").step == 9
    assert steps(target) == [1]
    assert steps(target.with_name("m.ema")) == [2]


def test_a_save_of_another_name_leaves_an_unfinished_one(target):
    unfinished = UnfinishedCheckpoint(target.with_name("m.ema"), 1)
    save(target, 1)
    checkpoint.save_bytes("m", b"one file")
    assert unfinished.publish(b"manifest", keep=1).step == 1


def test_a_save_after_a_failed_one_of_this_process_removes_its_files(target):
    UnfinishedCheckpoint(target, 1)
    save(target, 2)
    UnfinishedCheckpoint(target, 3)
    save(target, 3)
    assert (steps(target), leftovers(target)) == ([2, 3], [])


def test_discarding(target):
    unfinished = UnfinishedCheckpoint(target, 1)
    (unfinished.path / "rank00000.bin").write_bytes(b"half")
    unfinished.discard()
    assert list(target.parent.iterdir()) == []


_WRITER = """
import os, signal, sys
from pathlib import Path
from hai.task.sharded_checkpoint import UnfinishedCheckpoint
unfinished = UnfinishedCheckpoint(Path(sys.argv[1]), 2)
(unfinished.path / "rank00000.bin").write_bytes(b"half")
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(target):
    """Another process that is saving step 2."""
    command = [sys.executable, "-c", _WRITER, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"written\n"
        yield process
        process.kill()


def test_the_files_of_a_running_writer_stay(target, writer):
    assert sharded_checkpoint.remove_unfinished(target.parent) == 0
    save(target, 1)
    with pytest.raises(FileExistsError, match="another process is saving this step"):
        save(target, 2)
    assert leftovers(target) == [".m.000000000002.dcp.writing"]


@pytest.mark.parametrize(
    "remove",
    [
        pytest.param(lambda target: save(target, 2), id="next save"),
        pytest.param(lambda target: save(target, 3), id="save of another step"),
        pytest.param(
            lambda target: sharded_checkpoint.remove_unfinished(target.parent), id="agent"
        ),
    ],
)
def test_the_files_of_a_killed_writer_are_removed(target, writer, remove):
    writer.kill()
    assert writer.wait() == -signal.SIGKILL
    assert leftovers(target) == [".m.000000000002.dcp.writing"]
    remove(target)
    assert leftovers(target) == []


def test_an_empty_directory_of_a_killed_writer_is_removed(target):
    sharded_checkpoint.unfinished_path(target, 1).mkdir(parents=True)
    assert sharded_checkpoint.remove_unfinished(target.parent) == 1
    assert leftovers(target) == []


def test_without_locks_the_same_step_can_be_saved_again(target, writer, monkeypatch):
    writer.kill()
    writer.wait()

    def unsupported(*_: object) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr("fcntl.lockf", unsupported)
    assert sharded_checkpoint.remove_unfinished(target.parent) == 0
    save(target, 2)
    assert (steps(target), leftovers(target)) == ([2], [])


def save_files(target: Path, step: int):
    """Save as a library does that writes its own files, also in directories."""
    unfinished = UnfinishedCheckpoint(target, step)
    (unfinished.path / "shards").mkdir()
    (unfinished.path / "shards" / "0").write_bytes(b"weights")
    (unfinished.path / "meta").write_bytes(b"")
    sharded_checkpoint.flush_files(unfinished.path)
    return unfinished.publish_files(keep=2)


def test_files_of_a_library(target):
    assert sharded_checkpoint.latest_complete(target) is None
    for step in (1, 2, 3):
        saved = save_files(target, step)
    assert sharded_checkpoint.latest_complete(target) == saved
    assert (saved.path / "shards" / "0").read_bytes() == b"weights"
    assert (steps(target), leftovers(target)) == ([2, 3], [])


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda path: path.write_bytes(b"weight"), id="torn"),
        pytest.param(lambda path: path.unlink(), id="missing"),
    ],
)
def test_without_a_file_of_a_library_the_checkpoint_before_is_used(target, harm):
    first, second = save_files(target, 1), save_files(target, 2)
    harm(second.path / "shards" / "0")
    assert sharded_checkpoint.latest_complete(target) == first
    assert steps(target) == [1]

"""A checkpoint is complete and verified, or it does not exist."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hai.task import block_file, checkpoint, checkpoint_files, current_channel, env
from tests.small_disk import small_disk


@pytest.fixture
def folder(outside, tmp_path: Path) -> Path:
    outside.setenv(env.CHECKPOINT_DIR, str(tmp_path / "kept"))
    return tmp_path / "kept"


def steps(folder: Path) -> list[int]:
    return [int(path.name.split(".")[1]) for path in sorted(folder.iterdir())]


def test_what_was_saved_is_latest(folder):
    assert checkpoint.latest("m") is None
    saved = checkpoint.save_bytes("m", b"weights", step=3)
    assert checkpoint.latest("m") == saved
    assert (saved.step, saved.read_bytes()) == (3, b"weights")


def test_writers_may_seek(folder):
    def write(file):
        file.write(b"....tail")
        file.seek(0)
        file.write(b"head")

    assert checkpoint.save("m", write, step=1).intact()
    assert checkpoint.latest("m").read_bytes() == b"headtail"


def test_libraries_may_replace_the_path(folder):
    def write(path: Path):
        other = path.with_suffix(".other")
        other.write_bytes(b"data")
        other.replace(path)

    assert checkpoint.save_path("m", write, step=1).read_bytes() == b"data"
    assert steps(folder) == [1]


def test_keeps_the_newest(folder):
    for step in range(5):
        checkpoint.save_bytes("m", bytes([step]), step=step, keep=3)
    assert steps(folder) == [2, 3, 4]


def test_names_do_not_meddle(folder, tmp_path):
    checkpoint.save_bytes("m", b"1", step=9, keep=1)
    checkpoint.save_bytes("m.rank1", b"2", step=1, keep=1)
    checkpoint.save_bytes(tmp_path / "else" / "m", b"3", step=1, keep=1)
    assert checkpoint.latest("m").read_bytes() == b"1"
    assert checkpoint.latest("m.rank1").read_bytes() == b"2"
    assert checkpoint.latest(tmp_path / "else" / "m").read_bytes() == b"3"


def test_counts_on_without_a_step(folder):
    assert [checkpoint.save_bytes("m", b"x").step for _ in range(3)] == [0, 1, 2]


def test_a_second_try_at_a_step_replaces_the_first(folder):
    checkpoint.save_bytes("m", b"first", step=5)
    checkpoint.save_bytes("m", b"second", step=5)
    assert checkpoint.latest("m").read_bytes() == b"second"
    assert steps(folder) == [5]


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda data: data[: len(data) // 2], id="torn"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"X" + data[1:], id="corrupted"),
        pytest.param(lambda data: data + b"\0", id="longer"),
    ],
)
def test_a_damaged_file_is_set_aside_and_the_one_before_used(folder, capsys, harm):
    checkpoint.save_bytes("m", b"old weights", step=1)
    newest = checkpoint.save_bytes("m", b"new weights", step=2)
    newest.path.write_bytes(harm(b"new weights"))
    assert checkpoint.latest("m").read_bytes() == b"old weights"
    assert "does not match its digest: it is set aside" in capsys.readouterr().err
    assert len(list(folder.glob("*.damaged"))) == 1
    # the damaged one does not count for `keep`
    checkpoint.save_bytes("m", b"again", step=2, keep=1)
    assert checkpoint.latest("m").read_bytes() == b"again"


@pytest.mark.parametrize("size", [0, 1, 1000], ids="{} bytes".format)
def test_reading_verifies_on_the_way(folder, monkeypatch, size):
    monkeypatch.setattr(block_file, "BLOCK_BYTES", 64)
    old, new = b"o" * size, b"n" * size
    first = checkpoint.save_bytes("m", old, step=1)
    newest = checkpoint.save_bytes("m", new, step=2)
    assert checkpoint.read_latest("m") == (newest, new)
    newest.path.write_bytes(new + b"x")
    assert checkpoint.read_latest("m") == (first, old)
    assert checkpoint.read_latest("m", step=2) is None


def test_a_large_checkpoint_of_an_earlier_release_is_intact(folder, monkeypatch):
    monkeypatch.setattr(block_file, "BLOCK_BYTES", 64)
    folder.mkdir()
    content = os.urandom(1000)
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"m.000000000003.{digest}").write_bytes(content)
    assert checkpoint.latest("m").step == 3
    assert bytes(checkpoint.read_latest("m")[1]) == content


def test_going_back_sets_later_steps_aside(folder, capsys):
    for step in (10, 20, 15):
        checkpoint.save_bytes("m", b"at %d" % step, step=step)
    assert checkpoint.latest("m").read_bytes() == b"at 15"
    assert len(list(folder.glob("m.000000000020.*.abandoned"))) == 1
    assert "is of a later step than 15" in capsys.readouterr().err


def test_one_step_can_be_asked_for(folder):
    for step in (1, 2):
        checkpoint.save_bytes("m", b"%d" % step, step=step)
    assert checkpoint.latest("m", step=1).read_bytes() == b"1"
    assert checkpoint.latest("m", step=3) is None


def test_a_failed_write_leaves_the_one_before(folder):
    checkpoint.save_bytes("m", b"good", step=1, keep=1)

    def write(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as failure:
        checkpoint.save("m", write, step=2, keep=1)
    assert "earlier ones are untouched" in failure.value.__notes__[0]
    assert steps(folder) == [1]
    assert checkpoint.latest("m").read_bytes() == b"good"


def _as_torch_does(file):
    """Write a file. If that fails, raise a RuntimeError in place of the OSError, as torch does."""
    try:
        file.write(os.urandom(8 << 20))
        file.flush()
    except OSError:
        raise RuntimeError("PytorchStreamWriter failed writing file") from None


@pytest.mark.parametrize(
    ("write", "error"),
    [
        pytest.param(lambda file: file.write(os.urandom(8 << 20)), OSError, id="the file's error"),
        pytest.param(_as_torch_does, RuntimeError, id="a library's error"),
    ],
)
def test_a_full_disk_leaves_the_one_before_and_no_half_one(write, error, outside, tmp_path):
    with small_disk(tmp_path / "disk", 4) as disk:
        outside.setenv(env.CHECKPOINT_DIR, str(disk))
        checkpoint.save_bytes("m", b"good", step=1, keep=1)
        for _ in range(2):
            with pytest.raises(error) as failure:
                checkpoint.save("m", write, step=2, keep=1)
            assert failure.value.__notes__ == [
                f"no checkpoint {disk}/m was saved; earlier ones are untouched"
            ]
            assert steps(disk) == [1]
            assert checkpoint.latest("m").read_bytes() == b"good"
        checkpoint.save_bytes("m", bytes(2 << 20), step=2, keep=1)
        assert (steps(disk), checkpoint.latest("m").step) == ([2], 2)


def test_killed_writers_are_cleared_away(folder):
    checkpoint.save_bytes("m", b"good", step=1)
    code = (
        "import os, signal\n"
        "from hai.task import checkpoint\n"
        "def write(file):\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "checkpoint.save('m', write, step=2)"
    )
    died = subprocess.run([sys.executable, "-c", code], env=os.environ)
    assert died.returncode == -signal.SIGKILL
    assert len(list(folder.glob(".m.*.writing"))) == 1
    assert checkpoint.latest("m").step == 1
    checkpoint.save_bytes("m", b"next", step=2)
    assert list(folder.glob(".m.*.writing")) == []
    assert checkpoint.latest("m").read_bytes() == b"next"


_POINTS = ["os.pwrite", "os.fsync", "pathlib.Path.rename", "pathlib.Path.unlink"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("point", _POINTS)
@pytest.mark.parametrize(
    "earlier", [pytest.param(1, id="going on"), pytest.param(9, id="going back")]
)
def test_a_kill_at_any_point_leaves_an_intact_latest(folder, earlier, point, moment):
    checkpoint.save_bytes("m", b"good", step=earlier, keep=1)
    code = (
        "import hashlib, os, pathlib, signal\n"
        "from hai.task import checkpoint\n"
        f"real = {point}\n"
        "def deadly(*a, **k):\n"
        f"    if {moment!r} == 'after': real(*a, **k)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{point} = deadly\n"
        "checkpoint.save_bytes('m', b'next', step=2, keep=1)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    found = checkpoint.latest("m")
    assert (found.step, found.read_bytes()) in [(earlier, b"good"), (2, b"next")]


def test_a_live_writer_is_left_alone(folder):
    def write(file):
        checkpoint.save_bytes("m", b"inner", step=1)
        file.write(b"outer")

    checkpoint.save("m", write, step=2)
    assert checkpoint.latest("m").read_bytes() == b"outer"


def test_the_agent_hears_of_it(cluster):
    checkpoint.save_bytes("m", b"x", step=7)
    (call,) = cluster.calls
    assert (call["call"], call["step"]) == ("checkpoint_saved", 7)
    assert 0 < call["seconds"] < 30


@pytest.mark.parametrize("load", [checkpoint.latest, checkpoint.read_latest])
def test_the_agent_hears_how_long_it_took_to_load(cluster, load):
    load("m")
    assert cluster.calls == []  # there was none
    checkpoint.save_bytes("m", b"x", report=False)
    load("m")
    (call,) = cluster.calls
    assert call["call"] == "checkpoint_loaded"
    assert 0 < call["seconds"] < 30


def test_a_part_of_a_checkpoint_is_not_reported(cluster):
    checkpoint.save_bytes("m", b"x", step=7, report=False)
    checkpoint.save_path("m", lambda path: path.write_bytes(b"y"), step=8, report=False)
    assert cluster.calls == []


def test_a_silent_agent_costs_no_checkpoint(cluster, monkeypatch):
    monkeypatch.setattr(current_channel, "REPORT_SECONDS", 0.05)
    cluster.close()
    assert checkpoint.save_bytes("m", b"x", step=7).intact()


def test_outside_the_cluster_files_stay_in_the_working_directory(outside, tmp_path):
    outside.chdir(tmp_path)
    saved = checkpoint.save_bytes("m", b"x", step=1)
    assert saved.path.parent == Path("checkpoints")


@given(
    saves=st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=8)), min_size=1, max_size=12),
    keep=st.integers(1, 4),
)
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_latest_is_what_was_saved_last_and_no_more_than_keep_remain(folder, saves, keep):
    for number, (step, data) in enumerate(saves):
        checkpoint.save_bytes(f"m{len(saves)}", data, step=step, keep=keep)
        found = checkpoint.latest(f"m{len(saves)}")
        assert (found.step, found.read_bytes()) == saves[number]
    assert len(checkpoint_files.published(folder / f"m{len(saves)}")) <= keep

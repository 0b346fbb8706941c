"""A staged checkpoint is in memory, survives its program, and becomes durable exactly once."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hai.task import (
    block_file,
    checkpoint,
    checkpoint_files,
    control_file,
    env,
    staging,
    staging_buffers,
)
from tests.sdk.test_block_file import OPERATIONS, apply
from tests.small_disk import small_disk

MIB = 1 << 20


@pytest.fixture
def folder(outside, tmp_path: Path) -> Iterator[Path]:
    """The directory of durable checkpoints of a task that stages its checkpoints."""
    outside.setenv(env.CHECKPOINT_DIR, str(tmp_path / "kept"))
    outside.setenv(env.STAGING_DIR, str(tmp_path / "memory" / "7"))
    (tmp_path / "memory" / "7").mkdir(parents=True)
    yield tmp_path / "kept"
    for buffers in staging_buffers._buffers.values():
        buffers.close()
    staging_buffers._buffers.clear()


@pytest.fixture
def stage(folder: Path, tmp_path: Path) -> Path:
    return tmp_path / "memory" / "7"


def kinds(stage: Path) -> list[str]:
    return sorted(path.suffix for path in stage.iterdir())


def durable(folder: Path) -> list[int]:
    return [found.step for found in checkpoint_files.published(folder / "m")]


def run(code: str) -> int:
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


def save_in_a_program(step: int, data: str = "next") -> None:
    code = "from hai.task import checkpoint\n"
    assert run(f"{code}checkpoint.save_bytes('m', {data.encode()!r}, step={step}, keep=1)") == 0


def test_a_save_only_copies_into_memory(folder, stage):
    saved = checkpoint.save_bytes("m", b"weights", step=3)
    assert (saved.step, saved.digest, kinds(stage)) == (3, "", [".data", ".json"])
    assert durable(folder) == []


def test_latest_waits_until_the_checkpoint_is_durable(folder, stage):
    checkpoint.save_bytes("m", b"weights", step=3)
    found = checkpoint.latest("m")
    assert (found.step, found.read_bytes(), found.intact()) == (3, b"weights", True)
    assert kinds(stage) == [".data"]


def test_a_demand_for_durability_is_met(folder, stage):
    checkpoint.save_bytes("m", b"old", step=3)
    saved = checkpoint.save_bytes("m", b"weights", step=4, durable=True)
    assert saved.intact()
    assert (durable(folder), kinds(stage)) == ([3, 4], [".data"])


@pytest.mark.parametrize("ended", [pytest.param(True, id="of an earlier run"), False])
def test_a_staged_checkpoint_is_read_from_memory(folder, stage, ended):
    if ended:
        save_in_a_program(3)
    else:
        checkpoint.save_bytes("m", b"next", step=3)
    newest = checkpoint.read_latest("m")
    assert newest is not None
    found, content = newest
    assert (found.step, bytes(content), kinds(stage)) == (3, b"next", [".data", ".json"])
    checkpoint.latest("m")
    content[:1] = b"x"  # it is the reader's own
    assert checkpoint.latest("m").read_bytes() == b"next"


def test_each_step_is_found_where_it_is(folder, stage):
    for step in (1, 2):
        checkpoint.save_bytes("m", b"%d" % step, step=step)
        if step == 1:
            staging.write_out_all(stage)
    assert [bytes(checkpoint.read_latest("m", step=step)[1]) for step in (1, 2)] == [b"1", b"2"]
    assert checkpoint.read_latest("m", step=3) is None


def test_the_next_step_counts_staged_checkpoints(folder, stage):
    steps = [checkpoint.save_bytes("m", b"").step for _ in range(2)]
    staging.write_out_all(stage)
    assert [*steps, checkpoint.save_bytes("m", b"").step] == [0, 1, 2]


@pytest.mark.parametrize(
    ("steps", "remaining"),
    [
        pytest.param([1, 2, 3], [2, 3], id="two are kept"),
        pytest.param([10, 20, 15], [10, 15], id="later steps are set aside"),
        pytest.param([5, 5], [5], id="a step is saved again"),
    ],
)
def test_staged_checkpoints_become_durable_in_order(folder, stage, steps, remaining):
    for number, step in enumerate(steps):
        checkpoint.save_bytes("m", b"%d" % number, step=step)
    assert staging.write_out_all(stage) == len(steps)
    assert durable(folder) == remaining
    assert checkpoint.latest("m").read_bytes() == b"%d" % (len(steps) - 1)


def test_a_clock_that_was_set_back_does_not_change_the_order(folder, stage, monkeypatch):
    checkpoint.save_bytes("m", b"first", step=1)
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    checkpoint.save_bytes("m", b"second", step=2)
    staging.write_out_all(stage)
    assert checkpoint.latest("m").read_bytes() == b"second"


def test_a_buffer_is_filled_again(folder, stage):
    for step in range(4):
        checkpoint.save_bytes("m", bytes(MIB), step=step)
        staging.write_out_all(stage)
    assert kinds(stage) == [".data"]


def test_memory_for_one_state_makes_the_next_save_wait(folder, stage, outside):
    outside.setenv(env.STAGING_BYTES, str(MIB + 4096))
    for step in range(3):
        checkpoint.save_bytes("m", bytes(MIB), step=step, keep=9)
    assert (durable(folder), kinds(stage)) == ([0, 1], [".data", ".json"])


def test_other_tasks_count_for_the_limit_of_the_node(folder, stage, outside, capsys):
    (stage.parent / "8").mkdir()
    (stage.parent / "8" / "1.data").write_bytes(bytes(MIB))
    outside.setenv(env.STAGING_BYTES, str(MIB + 4096))
    assert checkpoint.save_bytes("m", bytes(MIB), step=1).intact()
    assert "written directly" in capsys.readouterr().err


@pytest.mark.parametrize("size", [0, 2 * MIB], ids=["of unknown size", "of known size"])
def test_what_does_not_fit_is_written_directly(folder, stage, outside, size):
    content = os.urandom(2 * MIB)
    outside.setenv(env.STAGING_BYTES, str(MIB))
    checkpoint.save_bytes("m", b"small", step=1)
    saved = checkpoint.save("m", lambda file: file.write(content), step=2, size=size)
    assert saved.read_bytes() == content
    assert durable(folder) == [1, 2]


def test_a_full_memory_is_left_for_the_disk(folder, outside, tmp_path):
    content = os.urandom(3 * MIB)
    with small_disk(tmp_path / "small", 2) as memory:
        (memory / "7").mkdir()
        outside.setenv(env.STAGING_DIR, str(memory / "7"))
        for size in (0, len(content)):
            saved = checkpoint.save("m", lambda file: file.write(content), step=size, size=size)
            assert saved.read_bytes() == content


@pytest.mark.parametrize(
    ("limit", "is_staged"),
    [("max", True), (str(MIB), True), (str(MIB // 2), False)],
    ids=["no limit", "enough", "too little"],
)
def test_the_memory_limit_of_the_container_counts(
    folder, stage, monkeypatch, tmp_path, limit, is_staged
):
    files = {
        "memory.max": f"{limit}\n",
        "memory.current": f"{MIB // 2}\n",
        "memory.stat": f"anon {MIB // 4}\ninactive_file {MIB // 8}\nactive_file {MIB // 8}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(staging_buffers, "_CGROUP", tmp_path)
    checkpoint.save_bytes("m", bytes(MIB // 2), step=7)
    assert bool(kinds(stage)) == is_staged


def _write_as_a_library(path: Path, content: bytes) -> None:
    """Write like torch.save, which raises an error of its own."""
    try:
        path.write_bytes(content)
    except OSError:
        raise RuntimeError("unexpected pos 192 vs 86") from None


def _write_and_remove(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError:
        path.unlink()
        raise


@pytest.mark.parametrize("write", [Path.write_bytes, _write_as_a_library, _write_and_remove])
def test_a_library_that_fills_the_memory_writes_to_the_disk(
    folder, outside, tmp_path, capsys, write
):
    content = os.urandom(3 * MIB)
    with small_disk(tmp_path / "small", 2) as memory:
        (memory / "7").mkdir()
        outside.setenv(env.STAGING_DIR, str(memory / "7"))
        saved = checkpoint.save_path("m", lambda path: write(path, content), step=2, size=MIB)
        assert saved.read_bytes() == content
        assert "written directly" in capsys.readouterr().err
        assert list((memory / "7").iterdir()) == []  # the memory is free again
        assert checkpoint.save_path("m", lambda path: path.write_bytes(b"x"), size=1).digest == ""


def test_a_library_writes_to_the_disk_if_the_memory_is_removed(folder, stage, capsys):
    def write(path):
        shutil.rmtree(stage, ignore_errors=True)
        path.write_bytes(b"x")

    assert checkpoint.save_path("m", write, size=MIB).read_bytes() == b"x"
    assert "written directly" in capsys.readouterr().err


def test_an_error_of_a_library_is_raised_once(folder, stage):
    calls = []

    def write(path):
        calls.append(path)
        raise RuntimeError("a part has no state")

    with pytest.raises(RuntimeError, match="no state"):
        checkpoint.save_path("m", write, size=MIB)
    assert (len(calls), kinds(stage), checkpoint.read_latest("m")) == (1, [], None)


def _replace(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize("write", [Path.write_bytes, _replace])
def test_a_library_that_opens_the_file_itself_writes_to_memory(folder, stage, write):
    for content in (b"a long content", b"short"):
        saved = checkpoint.save_path("m", lambda path: write(path, content), size=100)  # noqa: B023
        assert saved.digest == ""
        staging.remove_unused(stage)
        assert kinds(stage) == [".data", ".json"]
        assert checkpoint.latest("m").read_bytes() == content


def test_a_failed_write_leaves_the_one_before(folder, stage):
    checkpoint.save_bytes("m", b"good", step=1)

    def write(file):
        file.write(b"half")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        checkpoint.save("m", write, step=2)
    assert bytes(checkpoint.read_latest("m")[1]) == b"good"
    checkpoint.save_bytes("m", b"next", step=2)
    assert kinds(stage) == [".data", ".data", ".json", ".json"]


def test_a_disk_that_is_full_keeps_the_checkpoint_staged(folder, stage, outside, tmp_path):
    content = os.urandom(3 * MIB)
    with small_disk(tmp_path / "disk", 2) as disk:
        outside.setenv(env.CHECKPOINT_DIR, str(disk))
        checkpoint.save_bytes("m", content, step=1)
        with pytest.raises(OSError, match="No space left"):
            staging.write_out_all(stage)
        assert bytes(checkpoint.read_latest("m")[1]) == content
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        assert staging.write_out_all(stage) == 1
        assert checkpoint.latest("m").read_bytes() == content


def test_buffers_of_programs_that_have_ended_are_removed(folder, stage):
    save_in_a_program(1)
    checkpoint.save_bytes("other", b"x", step=1)
    staging.remove_unused(stage)
    assert kinds(stage) == [".data", ".data", ".json", ".json"]
    staging.write_out_all(stage)
    staging.remove_unused(stage)
    assert kinds(stage) == [".data"]  # of this process


def test_the_agent_sees_how_much_is_saved(cluster, stage, outside):
    seen = []

    def write(file):
        for _ in range(2):
            file.write(bytes(MIB))
            words = memoryview(cluster.control_file.read_bytes()).cast("q")
            seen.append(tuple(words[control_file.SAVES // 8 :][:2]))

    checkpoint.save("m", write, step=1, size=4 * MIB)
    assert seen == [(MIB, 4 * MIB), (2 * MIB, 4 * MIB)]
    words = memoryview(cluster.control_file.read_bytes()).cast("q")
    assert tuple(words[control_file.SAVES // 8 :][:2]) == (0, 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(OPERATIONS, max_size=12), st.integers(0, 1024), st.sampled_from([0, 64, 640, 4096]))
def test_any_operations_give_the_content_of_a_plain_file(
    folder: Path, stage: Path, monkeypatch: pytest.MonkeyPatch, operations, limit, size
) -> None:
    monkeypatch.setattr(block_file, "BLOCK_BYTES", 64)
    monkeypatch.setattr(staging_buffers, "_COPY_BYTES", 48)
    monkeypatch.setattr(staging_buffers, "_available_bytes", lambda: limit)
    for buffers in staging_buffers._buffers.values():
        buffers.close()
    plain = io.BytesIO()

    def write(file):
        for operation in operations:
            assert apply(file, operation) == apply(plain, operation), operation

    checkpoint.save("m", write, step=1, size=size)
    assert bytes(checkpoint.read_latest("m")[1]) == plain.getvalue()
    assert checkpoint.latest("m").read_bytes() == plain.getvalue()


_POINTS = [
    *("os.pwrite", "os.fsync", "pathlib.Path.rename", "pathlib.Path.unlink"),
    *("fcntl.flock", "pathlib.Path.write_text"),
]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("point", _POINTS)
@pytest.mark.parametrize("work", ["save", "write out"])
def test_a_kill_at_any_point_loses_nothing(folder, stage, capsys, work, point, number, moment):
    """`number` is that of the call of `point` at which the process is killed."""
    checkpoint.save_bytes("m", b"good", step=1, keep=1, durable=True)
    if work == "write out":
        save_in_a_program(2)
    call = {
        "save": "checkpoint.save('m', lambda file: file.write(b'next'), step=2, keep=1)",
        "write out": f"staging.write_out_all(pathlib.Path({str(stage)!r}))",
    }[work]
    code = (
        "import fcntl, os, pathlib, signal\n"
        "from hai.task import checkpoint, staging\n"
        f"real, calls = {point}, []\n"
        "def deadly(*a, **k):\n"
        "    calls.append(a)\n"
        f"    if len(calls) <= {number}: return real(*a, **k)\n"
        f"    if {moment!r} == 'after': real(*a, **k)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{point} = deadly\n"
        f"{call}"
    )
    killed = run(code) == -signal.SIGKILL
    newest = checkpoint.read_latest("m")
    assert newest is not None
    found, content = newest
    expected = [(2, b"next")] if work == "write out" or not killed else [(1, b"good"), (2, b"next")]
    assert (found.step, bytes(content)) in expected
    assert checkpoint.latest("m").step == found.step  # writes out what is staged
    staging.remove_unused(stage)
    checkpoint_files.remove_unfinished(folder)
    assert durable(folder) == [found.step]
    assert len(list(folder.iterdir())) == 1
    assert "was lost" not in capsys.readouterr().err
    assert set(kinds(stage)) <= {".part"}  # removed a minute later


@pytest.mark.parametrize("durable", [None, 1], ids=["nothing durable", "an earlier one"])
@pytest.mark.parametrize("read", [checkpoint.latest, checkpoint.read_latest])
def test_the_loss_of_the_memory_is_told_once(folder, stage, capsys, outside, durable, read):
    outside.setenv(env.NODE_NAME, "node3")
    if durable is not None:
        checkpoint.save_bytes("m", b"good", step=durable, durable=True)
    checkpoint.save_bytes("m", b"lost", step=28)
    checkpoint.save_bytes("m.rank1", b"of another rank", step=28)
    for path in stage.iterdir():
        path.unlink()
    for _ in range(2):
        found = read("m")
        assert (found is None) == (durable is None)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "hai: checkpoint m of step 28 was lost with the memory of node node3 before it was on disk; the task goes on "
        + ("from the beginning" if durable is None else "from step 1")
    ]


@pytest.mark.parametrize("durable", [None, 1])
def test_the_platform_hears_of_the_loss(cluster, stage, outside, durable):
    outside.setenv(env.NODE_NAME, "node3")
    if durable is not None:
        checkpoint.save_bytes("m", b"good", step=durable, durable=True, report=False)
    checkpoint.save_bytes("m", b"lost", step=28, report=False)
    for path in stage.iterdir():
        path.unlink()
    checkpoint.latest("m")
    resumed = -1 if durable is None else durable
    assert cluster.calls[0] == {
        "call": "checkpoint_lost",
        "step": 28,
        "node": "node3",
        "resumed_step": resumed,
    }


def test_a_checkpoint_that_became_durable_is_not_lost(folder, stage, capsys):
    for step in (1, 2, 3):
        checkpoint.save_bytes("m", b"%d" % step, step=step, keep=1)
        if step != 2:
            staging.write_out_all(stage)
    assert checkpoint.latest("m").step == 3
    assert capsys.readouterr().err == ""
    assert [path.name.split(".")[1] for path in folder.iterdir()] == ["000000000003"]


def test_a_loss_is_told_although_an_earlier_checkpoint_was_written_later(folder, stage, capsys):
    checkpoint.save_bytes("m", b"earlier", step=5)
    checkpoint.save_bytes("m", b"lost", step=6)
    (first, second) = staging.pending(stage)
    second.path.unlink()
    staging.write_out(first)
    assert checkpoint.latest("m").step == 5
    assert "checkpoint m of step 6 was lost" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["", "8"], ids=["no memory of its own", "another task"])
@pytest.mark.parametrize("read", [checkpoint.latest, checkpoint.read_latest])
def test_another_program_of_the_machine_finds_what_is_staged(
    folder, stage, outside, capsys, other, read
):
    checkpoint.save_bytes(folder / "m", b"weights", step=7)
    if other:
        (stage.parent / other).mkdir()
        outside.setenv(env.STAGING_DIR, str(stage.parent / other))
    else:
        outside.delenv(env.STAGING_DIR)
    found = read(folder / "m")
    assert (found if read is checkpoint.latest else found[0]).step == 7
    assert checkpoint.save_bytes(folder / "m", b"later", step=8, durable=True).intact()
    assert durable(folder) == [7, 8]
    assert capsys.readouterr().err == ""


@pytest.fixture
def elsewhere(outside, monkeypatch, tmp_path):
    """Makes this process one of another machine. Calls `meanwhile` on the first machine whenever it waits."""

    def move(meanwhile: Callable[[], object]) -> None:
        (tmp_path / "other" / "7").mkdir(parents=True)
        outside.setenv(env.STAGING_DIR, str(tmp_path / "other" / "7"))
        outside.setenv(env.STAGING_MACHINE, "node2/7")
        clock = [0.0]

        def sleep(seconds: float) -> None:
            clock[0] += seconds
            with monkeypatch.context() as patch:
                patch.setenv(env.STAGING_MACHINE, "node1/7")
                meanwhile()

        monkeypatch.setattr(time, "sleep", sleep)
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    outside.setenv(env.STAGING_MACHINE, "node1/7")
    outside.setenv(env.NODE_NAME, "node1")
    return move


@pytest.mark.parametrize("read", [checkpoint.latest, checkpoint.read_latest])
def test_a_checkpoint_in_the_memory_of_another_machine_is_awaited(
    folder, stage, capsys, elsewhere, read
):
    checkpoint.save_bytes("m", b"weights", step=7)
    elsewhere(lambda: staging.write_out_all(stage))
    found = read("m")
    assert (found if read is checkpoint.latest else found[0]).step == 7
    assert capsys.readouterr().err == "hai: waiting until node node1 has written m\n"
    assert len(list(folder.iterdir())) == 1


def test_a_machine_that_writes_nothing_is_not_awaited_for_ever(folder, stage, capsys, elsewhere):
    checkpoint.save_bytes("m", b"weights", step=7)
    elsewhere(lambda: None)
    assert checkpoint.latest("m") is None
    assert (
        "checkpoint m of step 7 was lost with the memory of node node1" in capsys.readouterr().err
    )
    assert checkpoint.latest("m") is None
    assert capsys.readouterr().err == ""


def test_what_is_written_too_late_replaces_nothing(folder, stage, capsys, elsewhere, outside):
    """The other machine had waited for a full disk."""
    checkpoint.save_bytes("m", b"weights", step=60)
    elsewhere(lambda: None)
    assert checkpoint.latest("m") is None
    checkpoint.save_bytes("m", b"later", step=80, durable=True)
    outside.setenv(env.STAGING_MACHINE, "node1/7")
    assert staging.write_out_all(stage) == 0
    assert "m of step 60 is dropped" in capsys.readouterr().err
    assert durable(folder) == [80]
    assert len(list(folder.iterdir())) == 1
    assert kinds(stage) == [".data"]  # of this process, which may save again


@pytest.mark.parametrize("below", [True, False])
def test_only_targets_that_a_writer_sees_are_staged(folder, stage, outside, below):
    outside.setenv(env.STAGING_TARGETS, f"/none:{folder if below else stage}")
    checkpoint.save_bytes("m", b"weights", step=1)
    assert (kinds(stage) == [".data", ".json"]) == below
    assert (durable(folder) == [1]) != below


def test_a_slow_machine_is_awaited_while_it_writes(folder, stage, elsewhere):
    checkpoint.save_bytes("m", b"weights", step=7)
    unfinished = folder / ".m.1.1.writing"
    sizes = iter(range(2000))  # 100 s

    def write() -> None:
        if size := next(sizes, 0):
            unfinished.write_bytes(bytes(size))
        else:
            staging.write_out_all(stage)

    elsewhere(write)
    next(sizes)
    assert checkpoint.latest("m").step == 7


def test_a_save_does_not_wait_for_other_machines(folder, stage, elsewhere):
    checkpoint.save_bytes("m", b"weights", step=7)
    elsewhere(lambda: pytest.fail("it waits"))
    assert checkpoint.save_bytes("m", b"other", step=8, durable=True).intact()


def test_a_buffer_that_was_removed_is_a_loss(folder, stage, capsys):
    checkpoint.save_bytes("m", b"weights", step=7)
    (staged,) = staging.pending(stage)
    staged.files[0].data.unlink()
    assert not staging.write_out(staged)
    assert staging.pending(stage) == []
    assert checkpoint.latest("m") is None
    assert "checkpoint m of step 7 was lost" in capsys.readouterr().err


def test_memory_that_is_removed_during_a_save_costs_no_checkpoint(folder, stage, capsys):
    def write(file):
        file.write(b"weights")
        shutil.rmtree(stage)

    saved = checkpoint.save("m", write, step=7)
    assert saved.read_bytes() == b"weights"
    assert "written directly" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 1, "target": "t", "step": 1}'])
def test_a_file_of_another_kind_is_set_aside(folder, stage, text):
    (stage / f"{0:020d}-1.json").write_text(text)
    checkpoint.save_bytes("m", b"weights", step=7)
    assert staging.write_out_all(stage) == 1
    assert checkpoint.latest("m").step == 7
    assert kinds(stage) == [".bad", ".data"]


def test_a_buffer_that_another_thread_stages_is_not_given_away(folder, stage, monkeypatch):
    """The other thread stages it while this one looks for a free buffer."""
    buffers = staging_buffers.buffers(stage)
    other = buffers.take(0)
    real = staging.used_buffers

    def used_buffers(directory: Path) -> set[Path]:
        used = real(directory)
        if other.filling:
            other.stage(folder / "other", 0, 1, 1)
        return used

    monkeypatch.setattr(staging, "used_buffers", used_buffers)
    assert buffers.take(0) is not other


def test_a_save_that_waits_for_an_earlier_one_shows_its_progress(cluster, folder, stage, outside):
    checkpoint.save_bytes("m", bytes(MIB), step=1)
    (staged,) = staging.pending(stage)
    folder.mkdir(exist_ok=True)
    shown: list[tuple[int, ...]] = []
    with staged.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        (folder / ".m.1.1.writing").write_bytes(bytes(1000))

        def unlock(seconds: float) -> None:
            words = memoryview(cluster.control_file.read_bytes()).cast("q")
            shown.append(tuple(words[control_file.SAVES // 8 :][:2]))
            fcntl.flock(other, fcntl.LOCK_UN)

        outside.setattr(time, "sleep", unlock)
        staging.write_out(staged)
    assert shown == [(1000, MIB)]


def test_two_writers_write_a_checkpoint_once(folder, stage):
    save_in_a_program(1, "x" * 1000)
    code = (
        "import pathlib\nfrom hai.task import staging\n"
        f"print(staging.write_out_all(pathlib.Path({str(stage)!r})))"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)
    ]
    counts = [int(writer.communicate()[0]) for writer in writers]
    assert sorted(counts) == [0, 0, 1]
    assert durable(folder) == [1]

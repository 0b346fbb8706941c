"""Staged checkpoints of this machine are written to disk, whichever process is killed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import hai.task.staging
from hai.task import checkpoint, checkpoint_files, env
from hai.task.staging import StagedCheckpoint, pending
from hai_backend.launch import checkpoint_writer, processes, write_reports
from hai_backend.launch.base import CheckpointWritten
from hai_backend.launch.local_launcher import ProcessLauncher, sweep
from hai_backend.launch.staging import CheckpointStaging
from tests.small_disk import fill, small_disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def staging(root: Path) -> CheckpointStaging:
    return CheckpointStaging(root)


def save(staging: CheckpointStaging, kept: Path, step: int, task: int = 7) -> None:
    """Save a checkpoint in a program, which ends then."""
    code = f"from hai.task import checkpoint; checkpoint.save_bytes('m', b'{step}', step={step})"
    variables = {**os.environ, **staging.variables(task), env.CHECKPOINT_DIR: str(kept)}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True)


def durable(kept: Path) -> list[int]:
    return [found.step for found in checkpoint_files.published(kept / "m")]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - files of other processes
            await asyncio.sleep(0.02)


async def until_durable(kept: Path, steps: list[int]) -> None:
    await until(lambda: durable(kept) == steps)


def writers(root: Path) -> list[int]:
    found = []
    for process in processes.all_processes():
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        if b"hai_backend.launch.checkpoint_writer" in words and os.fsencode(root) in words:
            found.append(process.pid)
    return found


async def test_a_checkpoint_becomes_durable_and_its_memory_is_freed(staging, root, tmp_path):
    staging.use(7)
    await asyncio.to_thread(save, staging, tmp_path / "kept", 1)
    staging.release(7)
    await until_durable(tmp_path / "kept", [1])
    await until(lambda: not [path for path in root.iterdir() if path.is_dir()])
    staging.close()


async def test_the_writer_reports_how_long_it_took(staging, root, tmp_path, monkeypatch):
    reports: list[CheckpointWritten] = []
    staging.start(reports.append)
    staging.use(7)
    monkeypatch.setenv(env.RUN_NUMBER, "3")
    await asyncio.to_thread(save, staging, tmp_path / "kept", 1)
    await until(lambda: reports)
    assert [(each.task_id, each.run) for each in reports] == [(7, 3)]
    assert 0 < reports[0].seconds < 20
    assert not list(root.glob("*.written"))
    staging.close()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"run": "x", "seconds": 1}'])
def test_a_report_that_cannot_be_read_is_removed(tmp_path, content):
    (tmp_path / "7.written").write_text(content)
    assert write_reports.take(tmp_path) == []
    assert not list(tmp_path.iterdir())


async def test_the_memory_of_a_running_task_stays(staging, root, tmp_path):
    staging.variables(7)
    staging.use(7)
    staging.start()
    await asyncio.to_thread(save, staging, tmp_path / "kept", 1, 8)
    staging.release(8)
    await until(lambda: [path.name for path in root.iterdir() if path.is_dir()] == ["7"])
    staging.close()


async def test_the_next_server_writes_what_an_earlier_one_left(staging, root, tmp_path):
    save(staging, tmp_path / "kept", 1)
    again = CheckpointStaging(root)
    again.start()
    await until_durable(tmp_path / "kept", [1])
    again.close()


async def test_a_killed_writer_is_replaced(staging, root, tmp_path):
    with small_disk(tmp_path / "disk", 1) as disk:
        filling = fill(disk)
        save(staging, disk, 1)
        staging.start()
        await until(lambda: writers(root))
        os.kill(writers(root)[0], signal.SIGKILL)
        filling.unlink()
        await until_durable(disk, [1])
    staging.close()


async def test_the_writer_survives_its_server(staging, root, tmp_path):
    with small_disk(tmp_path / "disk", 1) as disk:
        filling = fill(disk)
        save(staging, disk, 1)
        staging.start()
        await until(lambda: writers(root))
        staging.close()
        filling.unlink()
        await until_durable(disk, [1])


def test_sweep_makes_all_checkpoints_durable(staging, root, tmp_path):
    for task in (7, 8):
        save(staging, tmp_path / f"kept{task}", 1, task)
    sweep(tmp_path, staging)
    assert [durable(tmp_path / f"kept{task}") for task in (7, 8)] == [[1], [1]]
    assert not root.exists()


def test_sweep_keeps_what_cannot_be_written(staging, root, tmp_path, caplog):
    with small_disk(tmp_path / "disk", 1) as disk:
        fill(disk)
        save(staging, disk, 1)
        sweep(tmp_path, staging)
        assert len(pending(root / "7")) == 1
        assert "is not written: " in caplog.text


async def test_a_server_without_tasks_uses_no_memory(staging, root):
    staging.start()
    staging.close()
    assert not root.exists()


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_memory_that_others_can_read_is_not_used(staging, root, mode):
    root.mkdir()
    root.chmod(mode)
    assert staging.variables(7) == {}


async def test_memory_that_others_can_write_is_not_touched(staging, root, tmp_path, caplog):
    save(staging, tmp_path / "kept", 1)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "1.data").touch()
    (root / "9").symlink_to(tmp_path / "others")
    root.chmod(0o777)
    staging.start()
    assert staging.finish() == []
    staging.close()
    assert "is not private" in caplog.text
    assert durable(tmp_path / "kept") == []
    root.chmod(0o700)
    assert staging.finish() == []
    assert durable(tmp_path / "kept") == [1]
    assert (tmp_path / "others" / "1.data").exists()


async def test_an_error_of_the_watch_is_not_the_end(staging, root, tmp_path, monkeypatch):
    from hai_backend.launch import staging as module

    def fail(*_, **__):
        raise RuntimeError("Too many open files")

    monkeypatch.setattr(module, "awatch", fail)
    monkeypatch.setattr(module, "_RESYNC_MILLISECONDS", 50)
    staging.use(7)
    await asyncio.to_thread(save, staging, tmp_path / "kept", 1)
    await until_durable(tmp_path / "kept", [1])
    staging.close()


def test_memory_of_another_user_is_not_used(staging, root):
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    root.mkdir(mode=0o700)
    os.chown(root, 65534, 65534)
    assert staging.variables(7) == {}


@pytest.fixture
def found(staging: CheckpointStaging, root: Path, tmp_path: Path) -> list[StagedCheckpoint]:
    """Three checkpoints: two of one target, and one of another."""
    save(staging, tmp_path / "a", 1)
    save(staging, tmp_path / "a", 2)
    save(staging, tmp_path / "b", 1)
    return pending(root / "7")


def test_the_writer_tries_again_and_keeps_the_order(found, root, tmp_path, monkeypatch, capsys):
    fails = [found[0].path, found[0].path]
    real = hai.task.staging.write_out

    def write_out(staged: StagedCheckpoint) -> object:
        if staged.path in fails:
            fails.remove(staged.path)
            raise OSError(28, "No space left on device")
        return real(staged)

    pauses: list[tuple[float, list[int], list[int]]] = []
    monkeypatch.setattr(hai.task.staging, "write_out", write_out)
    checkpoint_writer.write_all(
        root, lambda s: pauses.append((s, durable(tmp_path / "a"), durable(tmp_path / "b")))
    )
    assert pauses == [(1.0, [], [1])]
    assert durable(tmp_path / "a") == [1, 2]
    assert "a/m of step 1 cannot be written: [Errno 28] No space left" in capsys.readouterr().out


async def test_a_task_that_must_be_durable_gets_no_memory(tmp_path, staging):
    launcher = ProcessLauncher(
        tmp_path, SimpleNamespace(nodes=1, gpus_per_node=0, groups={}), staging
    )
    from hai_backend.launch.base import RankKey, RankLaunch
    from hai_backend.launch.request import RunRequest

    for before_leaving, names in [(False, {env.STAGING_DIR, env.STAGING_BYTES}), (True, set())]:
        run = RunRequest(durable_before_leaving=before_leaving)
        rank = RankLaunch(RankKey(7, 1, 0), "node1", "token", run=run)
        assert set(launcher._staging_variables(rank)) == names


def test_two_homes_have_different_memory(tmp_path):
    from hai_backend.launch.staging import default_root

    (tmp_path / "link").symlink_to(tmp_path / "a")
    roots = [default_root(tmp_path / name) for name in ("a", "b", "link")]
    assert roots[0] == roots[2] != roots[1]


def test_a_checkpoint_read_by_the_next_run(staging, root, tmp_path, monkeypatch):
    save(staging, tmp_path / "kept", 1)
    monkeypatch.setenv(env.STAGING_DIR, str(root / "7"))
    found = checkpoint.read_latest(tmp_path / "kept" / "m")
    assert found is not None
    assert (found[0].step, bytes(found[1])) == (1, b"1")


@pytest.fixture
def agent(staging: CheckpointStaging, root: Path) -> Iterator[int]:
    """The lock of an agent that uses the directory. It is released when the test closes it."""
    staging.variables(7)
    handle = os.open(root, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    yield handle
    with suppress(OSError):
        os.close(handle)


@pytest.fixture
async def pod(root: Path, agent: int) -> AsyncIterator[Process]:
    """A writer as in its pod."""
    module = "hai_backend.launch.checkpoint_writer"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--until-released", str(root))
    )
    yield process
    if process.returncode is None:
        process.kill()
        await process.wait()


async def test_a_writer_stays_until_the_agent_has_ended_and_leaves_nothing(
    tmp_path, staging, root, agent, pod
):
    for step in (1, 2):
        save(staging, tmp_path, step)
        await until_durable(tmp_path, [1, 2][:step])
    assert pod.returncode is None
    os.close(agent)
    assert await asyncio.wait_for(pod.wait(), 20) == 0
    assert list(root.iterdir()) == []


async def test_a_writer_that_is_asked_to_end_writes_first(tmp_path, staging, root, agent, pod):
    save(staging, tmp_path, 1)
    await until_durable(tmp_path, [1])  # it runs
    pod.terminate()
    save(staging, tmp_path, 2)
    os.close(agent)
    assert await asyncio.wait_for(pod.wait(), 20) == 0
    assert durable(tmp_path) == [1, 2]


async def test_a_writer_keeps_the_directory_of_the_next_run(tmp_path, staging, root, agent, pod):
    save(staging, tmp_path, 1)
    await until_durable(tmp_path, [1])
    with (root / "7").joinpath("of the next run.data").open("w") as buffer:
        fcntl.flock(buffer, fcntl.LOCK_EX)
        next_agent = os.open(root, os.O_RDONLY)
        fcntl.flock(next_agent, fcntl.LOCK_SH)
        os.close(agent)
        save(staging, tmp_path, 2)
        await until_durable(tmp_path, [1, 2])
        assert (root / "7").is_dir()
        os.close(next_agent)
        await asyncio.wait_for(pod.wait(), 20)
    assert list(root.iterdir()) == []

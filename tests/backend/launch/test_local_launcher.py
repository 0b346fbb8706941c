"""The process launcher with real agents that cannot reach a server."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hai_backend.launch import local_nodes, nvml, processes, rank_dirs
from hai_backend.launch.base import (
    KillRequest,
    LaunchFailed,
    NodeList,
    RankKey,
    RankLaunch,
    RankList,
    RankTerminated,
)
from hai_backend.launch.local_launcher import sweep
from tests.support import fake_nvml

pytestmark = pytest.mark.e2e

KEY = RankKey(3, 1, 0)
OTHER = RankKey(3, 1, 1)


def launch(key: RankKey = KEY, node: str = "node1") -> RankLaunch:
    return RankLaunch(key, node, "secret", (0,))


def agents(home: Path) -> list[int]:
    """Return the marked processes of this home that the launcher has started: the supervisor of each agent."""
    marked = [process for process, _ in processes.marked_processes(home / "run")]
    pids = {process.pid for process in marked}
    return [process.pid for process in marked if process.parent not in pids]


def marked_sleeper(home: Path, key: RankKey = KEY) -> subprocess.Popen[bytes]:
    """Start a process in its own session that only its mark identifies, as a program may do."""
    variables = {**os.environ, "HAI_CONTROL_FILE": str(home / "run" / str(key) / "control")}
    return subprocess.Popen(["sleep", "99"], env=variables, start_new_session=True)


def unmarked_sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "99"], start_new_session=True)


def kill_and_wait(record: Path) -> None:
    agent = processes.read_pid_file(record)
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    os.waitpid(agent.pid, 0)


def shown(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


async def test_nodes_then_what_exists_then_changes(home, watch):
    watched = await watch()
    seen = await watched.next()
    assert isinstance(seen, NodeList)
    assert [node.name for node in seen.nodes] == ["node1", "node2"]
    assert await watched.next() == RankList(frozenset())
    await watched.launcher.start([launch()])
    await watched.launcher.kill(KillRequest(KEY))
    assert await watched.next() == RankTerminated(KEY)
    assert agents(home) == []
    assert not (home / "run" / "3-1-0").exists()


async def test_start_twice_starts_once(home, watch):
    watched = await watch()
    await watched.launcher.start([launch(), launch(OTHER)])
    before = agents(home)
    await watched.launcher.start([launch(), launch(OTHER)])
    assert agents(home) == before
    assert len(before) == 2


async def test_kill_of_what_does_not_exist_says_gone(watch):
    watched = await watch()
    await watched.next(), await watched.next()
    await watched.launcher.kill(KillRequest(RankKey(99, 1, 0)))
    assert await watched.next() == RankTerminated(RankKey(99, 1, 0))


async def test_an_agent_that_dies_is_gone_with_all_it_left(home, watch):
    watched = await watch()
    await watched.next(), await watched.next()
    await watched.launcher.start([launch()])
    (agent,) = agents(home)
    with marked_sleeper(home) as leftover:
        os.kill(agent, signal.SIGKILL)
        assert await watched.next() == RankTerminated(KEY)
        assert leftover.wait() == -signal.SIGKILL


async def test_a_second_launcher_adopts_what_lives_and_clears_what_does_not(home, watch):
    first = await watch()
    await first.launcher.start([launch(), launch(OTHER)])
    await first.launcher.close()
    kill_and_wait(home / "run" / str(OTHER) / "agent.pid")
    second = await watch()
    assert isinstance(await second.next(), NodeList)
    assert await second.next() == RankList(frozenset({KEY}))
    await second.launcher.start([launch()])
    assert len(agents(home)) == 1
    await second.launcher.kill(KillRequest(KEY))
    assert await second.next() == RankTerminated(KEY)


async def test_a_launcher_that_was_closed_leaves_no_zombies(home, watch):
    """A server that is no longer the leader is still the parent of agents that another server watches."""
    first = await watch()
    await first.launcher.start([launch()])
    (agent,) = agents(home)
    await first.launcher.close()
    pidfd = os.pidfd_open(agent)
    os.kill(agent, signal.SIGKILL)
    await asyncio.to_thread(select.select, [pidfd], [], [], 10)
    os.close(pidfd)
    async with asyncio.timeout(10):
        while Path(f"/proc/{agent}").exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0)


async def test_a_second_agent_of_a_rank_leaves_at_once(home, watch):
    watched = await watch()
    await watched.launcher.start([launch()])
    directory = home / "run" / str(KEY)
    while not (directory / "agent.lock").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    second = [sys.executable, "-m", "hai_backend.agent", str(directory)]
    process = await asyncio.create_subprocess_exec(*second)
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert len(agents(home)) == 1


async def test_a_pid_that_is_another_process_now_is_left_alone(home, watch):
    directory = home / "run" / str(KEY)
    directory.mkdir(parents=True)
    with unmarked_sleeper() as stranger:
        (directory / "agent.pid").write_text(f"{stranger.pid} 1\n")
        watched = await watch()
        await watched.next()
        assert await watched.next() == RankList(frozenset())
        assert stranger.poll() is None
        stranger.kill()


async def test_a_node_that_is_not_there_is_said(watch):
    watched = await watch()
    await watched.next(), await watched.next()
    await watched.launcher.start([launch(node="node9")])
    failed = await watched.next()
    assert isinstance(failed, LaunchFailed)
    assert failed.unschedulable
    assert "node9" in failed.reason


async def test_a_directory_that_cannot_be_made_is_said(home, watch):
    (home / "run").write_text("in the way")
    watched = await watch()
    await watched.launcher.start([launch()])
    await watched.next()
    (home / "run").unlink()
    await watched.next()
    failed = await watched.next()
    assert isinstance(failed, LaunchFailed)
    assert "3-1-0" in failed.reason


async def test_the_rank_directory_is_private_and_agents_get_no_secrets_of_the_server(
    home, watch, monkeypatch
):
    monkeypatch.setenv("HAI_SERVER_DATABASE", "postgresql://user:password@db/hai")
    watched = await watch()
    await watched.launcher.start([launch()])
    directory = home / "run" / str(KEY)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "agent.json").stat().st_mode) == 0o600
    assert json.loads((directory / "agent.json").read_text())["token"] == "secret"
    (agent,) = agents(home)
    assert b"password" not in shown(agent, "environ")
    assert b"secret" not in shown(agent, "cmdline")


@pytest.mark.parametrize(
    ("real", "asked", "indices"),
    [
        pytest.param(0, (0,), None, id="simulated: nothing to choose from"),
        pytest.param(8, (1, 3), [5, 7], id="counted within the node"),
        pytest.param(8, (), [], id="none asked for, none shown"),
        pytest.param(1, (0,), [], id="the machine's only one is another node's"),
    ],
)
async def test_agents_learn_which_gpus_are_theirs(home, watch, monkeypatch, real, asked, indices):
    monkeypatch.setattr(local_nodes, "count_gpus", lambda: real)
    watched = await watch()
    await watched.launcher.start([replace(launch(node="node2"), gpu_indices=asked)])
    facts = json.loads((home / "run" / str(KEY) / "agent.json").read_text())
    assert facts["gpu_indices"] == indices


@pytest.mark.parametrize(
    ("real", "indices"),
    [
        pytest.param(2, {"node1": [0], "node2": [0]}, id="counted within the node"),
        pytest.param(1, {"node1": [0], "node2": []}, id="fewer GPUs than nodes"),
        pytest.param(0, {}, id="none"),
    ],
)
async def test_gpus_are_read_by_node(watch, monkeypatch, real, indices):
    monkeypatch.setattr(nvml, "library", lambda: fake_nvml)
    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetCount", lambda: real)
    gpus = await (await watch()).launcher.read_gpus()
    assert {name: [gpu.index for gpu in own] for name, own in gpus.items()} == indices
    assert not real or gpus["node1"][0].temperature == 71


async def test_sweep_ends_one_cluster_and_not_its_neighbour(home, watch, tmp_path_factory):
    neighbour = tmp_path_factory.mktemp("neighbour")
    watched = await watch()
    await watched.launcher.start([launch(), launch(OTHER)])
    with marked_sleeper(home, RankKey(8, 1, 0)) as ours, marked_sleeper(neighbour) as theirs:
        await watched.launcher.close()
        await asyncio.to_thread(sweep, home)
        assert ours.wait() == -signal.SIGKILL
        assert theirs.poll() is None
        theirs.kill()
    assert agents(home) == []
    assert not list((home / "run").iterdir())


def test_a_title_over_the_mark_hides_nothing(home):
    """Processes of the program's session are found even if they have overwritten their environment."""
    directory = home / "run" / str(KEY)
    directory.mkdir(parents=True)
    text = "sleep 98 & exec sleep 99"
    with subprocess.Popen(["bash", "-c", text], env={}, start_new_session=True) as program:
        processes.write_pid_file(directory / "program.pid", program.pid)
        sweep(home)
        assert program.wait() == -signal.SIGKILL
    assert not [p for p in processes.all_processes() if p.session == program.pid]


def test_what_shed_its_mark_and_its_session_is_still_the_agents(home):
    """While the agent runs, an orphan of `env -i setsid` in a program is a child of the agent."""
    directory = home / "run" / str(KEY)
    directory.mkdir(parents=True)
    text = (
        "import ctypes, subprocess, time; ctypes.CDLL(None).prctl(36, 1); "  # PR_SET_CHILD_SUBREAPER
        "subprocess.run(['env', '-i', 'setsid', '-f', 'sleep', '99']); print('ready', flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"ready\n"
        processes.write_pid_file(directory / "agent.pid", agent.pid)
        [orphan] = processes.descendants(agent.pid)
        sweep(home)
        assert agent.wait() == -signal.SIGKILL
    assert processes.read_process(orphan.pid) is None


def test_a_python_process_of_ours_is_never_swept_by_itself(home, monkeypatch):
    """`hai down` may be run in a shell that has the mark of a rank."""
    text = (
        "import pathlib, sys; from hai_backend.launch.local_launcher import sweep; "
        "sweep(pathlib.Path(sys.argv[1])); print('alive')"
    )
    monkeypatch.setenv("HAI_CONTROL_FILE", str(home / "run" / "1-1-0" / "control"))
    done = subprocess.run([sys.executable, "-c", text, home], capture_output=True, text=True)
    assert done.stdout == "alive\n"


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), KeyError("a bug"), asyncio.CancelledError()]
)
async def test_what_cannot_be_cleared_is_tried_again_until_it_is(watch, monkeypatch, error):
    """An error, of too many open files say, must not make a rank that nobody can end."""
    monkeypatch.setattr("hai_backend.launch.local_launcher._RETRY_SECONDS", 0.01)
    clear, errors = rank_dirs.clear, iter([error] * 2)

    def fails_first(*arguments):
        for error in errors:
            raise error
        return clear(*arguments)

    watched = await watch()
    await watched.next()
    await watched.next()
    monkeypatch.setattr(rank_dirs, "clear", fails_first)
    await watched.launcher.kill(KillRequest(KEY))
    assert await watched.next() == RankTerminated(KEY)


def test_a_process_that_cannot_be_looked_at_is_not_gone(monkeypatch):
    def refuses(*arguments):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("builtins.open", refuses)
    with pytest.raises(OSError, match="Too many open files"):
        processes.read_process(os.getpid())

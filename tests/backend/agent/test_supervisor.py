"""The supervisor kills all processes of a rank when the lease has expired or the agent has ended in any way.

The tests use real processes. The agent is a function, and its program ignores SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hai.task import env
from hai_backend.agent.rank_dir import RankDir
from hai_backend.launch import processes

LEASE = 0.6
STUBBORN = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)"

SUPERVISED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from hai_backend.agent.lease import Lease
from hai_backend.agent.rank_dir import RankDir
from hai_backend.agent.supervisor import supervise

directory, seconds, agent = RankDir(Path(sys.argv[1])), float(sys.argv[2]), sys.argv[3]
lease = Lease(seconds)

def run_agent():
    exec(agent, globals())
    return 0

sys.exit(supervise(directory, lease, run_agent))
"""


class Rank:
    """A rank's directory, and the supervisor that was started for it."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.directory = RankDir(path)
        (path / "agent.json").write_text("{}")
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, agent: str, lease: float = LEASE) -> asyncio.subprocess.Process:
        """Start a supervisor. `agent` is the Python code of its agent."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SUPERVISED, str(self.directory.path), str(lease), agent),
            env={**os.environ, env.CONTROL_FILE: str(self.directory.control)},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        return self.process

    async def ended(self) -> int:
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), 20)

    def failure(self) -> str:
        return self.directory.failure.read_text()

    def left(self) -> list[int]:
        """Return the pids of processes that have the mark of this rank."""
        return [p.pid for p, _ in processes.marked_processes(self.directory.path.parent)]


@pytest.fixture
async def rank(tmp_path: Path) -> AsyncIterator[Rank]:
    rank = Rank(tmp_path / "run" / "7-1-0")
    yield rank
    rank.directory.end_everything()
    if rank.process is not None and rank.process.returncode is None:
        rank.process.kill()
        await rank.process.wait()


def program(then: str) -> str:
    """Return the code of an agent that starts a program that ignores SIGTERM, prints the pids, and runs `then`."""
    started = f"started = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True, stdout=-3)"
    return f"{started}\nprint(os.getpid(), started.pid, flush=True)\n{then}"


async def pids(process: asyncio.subprocess.Process) -> tuple[int, int]:
    assert process.stdout is not None
    agent, started = (await process.stdout.readline()).split()
    return int(agent), int(started)


async def test_the_exit_code_of_the_agent_is_that_of_the_rank(rank: Rank) -> None:
    await rank.start("pass")
    assert await rank.ended() == 0
    assert not rank.directory.failure.exists()


HANGS = {
    "sleeps": "time.sleep(60)",
    "blocks all signals": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(60)",
    "is stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "spins": "while True: pass",
}


@pytest.mark.parametrize("then", [pytest.param(text, id=name) for name, text in HANGS.items()])
async def test_an_agent_that_renews_nothing_is_ended_with_its_program(
    rank: Rank, then: str
) -> None:
    began = time.monotonic()
    await pids(await rank.start(program(then)))
    assert await rank.ended() == 3
    assert time.monotonic() - began >= LEASE
    assert rank.left() == []
    assert "no server renewed the lease" in rank.failure()


async def test_a_renewed_lease_lasts_longer(rank: Rank) -> None:
    renew = "for _ in range(8): time.sleep(0.2); lease.renew(lease.now())"
    began = time.monotonic()
    await pids(await rank.start(program(f"{renew}\ntime.sleep(60)")))
    assert await rank.ended() == 3
    assert time.monotonic() - began >= 8 * 0.2 + LEASE


async def test_a_released_lease_leaves_the_agent_its_time(rank: Rank) -> None:
    await rank.start(f"lease.release(); time.sleep({2 * LEASE})")
    assert await rank.ended() == 0


ENDS = {
    "returns": ("pass", 0, None),
    "raises": ("raise RuntimeError('a bug')", 1, "ended unexpectedly, by exit code 1"),
    "exits": ("os._exit(4)", 4, "ended unexpectedly, by exit code 4"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "by signal 9"),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "by signal 11"),
}


@pytest.mark.parametrize(
    ("then", "code", "why"), [pytest.param(*case, id=name) for name, case in ENDS.items()]
)
async def test_however_the_agent_ends_nothing_is_left(
    rank: Rank, then: str, code: int, why: str | None
) -> None:
    await pids(await rank.start(program(then), lease=60.0))
    assert await rank.ended() == code
    assert rank.left() == []
    assert (why is None) is not rank.directory.failure.exists()
    assert why is None or why in rank.failure()


async def test_the_reason_that_the_agent_gave_is_not_replaced(rank: Rank) -> None:
    await rank.start("directory.report_failure('the first reason'); os._exit(1)", lease=60.0)
    await rank.ended()
    assert rank.failure() == "the first reason"


async def test_a_process_without_mark_session_or_parent_is_found(rank: Rank) -> None:
    hidden = "os.fork() or (os.setsid(), os.fork() and os._exit(0), time.sleep(60))"
    text = f"import os, time; {hidden}; print(os.getpid(), os.getpid(), flush=True)"
    start = f"subprocess.run([sys.executable, '-c', {text!r}], env={{'PATH': os.environ['PATH']}})"
    process = await rank.start(f"{start}\nos.kill(os.getpid(), signal.SIGKILL)", lease=60.0)
    await pids(process)
    assert await rank.ended() == 137
    assert processes.descendants(os.getpid()) == []


async def test_a_killed_supervisor_takes_the_agent_along(rank: Rank) -> None:
    process = await rank.start(program("time.sleep(60)"), lease=60.0)
    agent, _ = await pids(process)
    watched = os.pidfd_open(agent)
    process.kill()
    await rank.ended()
    await readable(watched)


async def test_a_supervisor_and_an_agent_that_were_stopped_end_at_once_when_they_go_on(
    rank: Rank,
) -> None:
    renew = "while True: time.sleep(0.1); lease.renew(lease.now())"
    process = await rank.start(program(renew))
    agent, _ = await pids(process)
    for pid in (process.pid, agent):
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(2 * LEASE)
    began = time.monotonic()
    for pid in (agent, process.pid):
        os.kill(pid, signal.SIGCONT)
    code = await rank.ended()
    assert code in (1, 3)  # it depends on which process notices first
    assert time.monotonic() - began < LEASE
    assert rank.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_reach_the_agent(rank: Rank, number: signal.Signals) -> None:
    wait = f"signal.signal({int(number)}, lambda *_: os._exit(0))\nprint(0, 0, flush=True)\ntime.sleep(60)"
    process = await rank.start(wait, lease=60.0)
    await pids(process)
    process.send_signal(number)
    assert await rank.ended() == 0


async def test_a_signal_does_not_keep_the_supervisor_busy(rank: Rank) -> None:
    process = await rank.start("print(0, 0, flush=True); time.sleep(60)", lease=60.0)
    await pids(process)
    process.send_signal(signal.SIGCHLD)
    await asyncio.sleep(0.1)
    before = processes.read_process(process.pid)
    await asyncio.sleep(0.5)
    after = processes.read_process(process.pid)
    assert before is not None
    assert after is not None
    assert (after.cpu_ticks - before.cpu_ticks) / processes.TICKS_PER_SECOND < 0.1


async def test_the_supervisor_is_the_process_that_the_launcher_watches(rank: Rank) -> None:
    process = await rank.start("print(0, 0, flush=True); time.sleep(60)", lease=60.0)
    await pids(process)
    found = processes.read_pid_file(rank.directory.agent_pid)
    assert found is not None
    assert found.pid == process.pid


async def readable(descriptor: int) -> None:
    """Wait for the end of a process by its pidfd."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), 20)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

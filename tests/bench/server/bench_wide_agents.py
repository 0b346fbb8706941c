"""5 000 attached ranks: what their heartbeats, their output and their return after a restart cost, and whom they delay.

Agents, users and the server have processes of their own. They share the cores, so the agents' use is a figure, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import psutil

from hai.client.client import Client
from hai.client.errors import TimedOut
from hai.v1.task_pb2 import RUN_STATE_RUNNING
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.bench.figures import Figure, percentile
from tests.load.users import profile_of
from tests.support.servers import ServerProcess

RANKS = int(os.environ.get("HAI_BENCH_RANKS", "5000"))
TASKS = 5
PROCESSES = 2  # of agents
SECONDS = 20.0  # of each measurement
_ATTACH_SECONDS = 300.0
_SETTLE_SECONDS = 10.0
_CALLS = {"get": 0.1, "list": 0.2, "submit": 0.2}


@dataclass(frozen=True, slots=True)
class Agents:
    """Processes of agents."""

    processes: Sequence[subprocess.Popen[bytes]]

    def cpu(self) -> float:
        """Return the CPU seconds of all agents."""
        return sum(_cpu(process.pid) for process in self.processes)

    def end(self) -> list[dict[str, Any]]:
        """End the agents, and return what they have measured."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        return [json.loads(process.communicate(timeout=60)[0]) for process in self.processes]


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU use of the server and of all agents, and the durations that users have seen, by call."""

    server_cores: float
    agents_cores: float
    seen: Mapping[str, Sequence[float]]


@contextmanager
def attached_agents(home: Path, lines: float) -> Iterator[Agents]:
    """The agents of all ranks, after all programs were started. No agent is left at the end."""
    share = RANKS // PROCESSES
    command = [sys.executable, "-m", "tests.load.agents", "--home", str(home)]
    command += ["--lines", str(lines), "--count", str(share), "--first"]
    command = ["nice", *command]  # on a real cluster they have cores of their own
    with (home / "agents.log").open("ab") as log:
        processes = [
            subprocess.Popen([*command, str(n * share)], stdout=subprocess.PIPE, stderr=log)
            for n in range(PROCESSES)
        ]
    try:
        asyncio.run(_wait_until_running(home))
        time.sleep(_SETTLE_SECONDS)
        yield Agents(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def filled_server() -> Iterator[ServerProcess]:
    """A server on whose nodes tasks run that need all of them. Their agents were not started yet."""
    with tempfile.TemporaryDirectory(prefix="hai-bench-", ignore_cleanup_errors=True) as folder:
        flags = ("--nodes", str(RANKS))
        (Path(folder) / "hai.toml").write_text("build_within = 600.0\n")
        server = ServerProcess(Path(folder), *flags, module="tests.load.server")
        server.start()
        try:
            asyncio.run(_submit(server.home))
            yield server
        finally:
            if server.running:
                server.end(signal.SIGKILL)


async def _submit(home: Path) -> None:
    async with Client(profile_of(home)) as client:
        for number in range(TASKS):
            spec = TaskSpec(
                version=2,
                name=f"wide{number}",
                spec=ProgramSpec(entrypoint="train.py", workspace="/tmp"),
                resource=ResourceSpec(node_count=RANKS // TASKS),
                priority=10,
            )
            await client.tasks.create(spec)


async def _wait_until_running(home: Path) -> None:
    """Wait until all ranks of all tasks have attached, and their programs run."""
    deadline = time.monotonic() + _ATTACH_SECONDS
    async with Client(profile_of(home)) as client:
        for task in range(1, TASKS + 1):
            state = None
            while state != RUN_STATE_RUNNING:
                assert time.monotonic() < deadline, "the agents have not attached"
                await asyncio.sleep(0.5)
                with suppress(TimedOut):  # agents that attach all at once keep the server busy
                    state = (await client.tasks.get(task)).run.state


def users_see(home: Path, follow: int, seconds: float = SECONDS) -> dict[str, list[float]]:
    """Return the durations of calls and the delays of lines that users have measured."""
    command = [sys.executable, "-m", "tests.load.users", "--home", str(home)]
    command += ["--seconds", str(seconds), "--follow", str(follow)]
    found: dict[str, list[float]] = json.loads(subprocess.check_output(command))
    return found


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def figures() -> Iterator[Figure]:
    with filled_server() as server, attached_agents(server.home, lines=0.0) as agents:
        quiet = _measure(server, agents)
        yield from _busy("", quiet, _CALLS)
        yield from _returning(server, agents, quiet.server_cores)
    with filled_server() as server, attached_agents(server.home, lines=1.0) as agents:
        bars = {**_CALLS, "server": 0.6, "follow": 2.0}
        yield from _busy(", 1 line/s each", _measure(server, agents, follow=1), bars)


def _measure(server: ServerProcess, agents: Agents, follow: int = 0) -> Measured:
    assert server.process is not None
    before, agents_before, began = _cpu(server.process.pid), agents.cpu(), time.monotonic()
    seen = users_see(server.home, follow)
    seconds = time.monotonic() - began
    return Measured(
        (_cpu(server.process.pid) - before) / seconds,
        (agents.cpu() - agents_before) / seconds,
        seen,
    )


def _busy(what: str, measured: Measured, bars: Mapping[str, float]) -> Iterator[Figure]:
    what = f"{RANKS} ranks{what}"
    yield Figure(f"{what}: server", measured.server_cores, "cores", bars.get("server"))
    yield Figure(f"{what}: agents", measured.agents_cores, "cores")
    for call, durations in measured.seen.items():
        yield Figure(f"{what}: {call}, median", percentile(durations, 50), "s")
        yield Figure(f"{what}: {call}, p99", percentile(durations, 99), "s", bars[call])


def _returning(server: ServerProcess, agents: Agents, quiet_cores: float) -> Iterator[Figure]:
    """Kill the server, start it again, and measure until all agents have attached."""
    server.end(signal.SIGKILL)
    server.start()
    answers_at = time.time()
    measured = _measure(server, agents)
    welcomed = [at - answers_at for report in agents.end() for at in report["welcomed_at"]]
    back = [at for at in welcomed if at > -1.0]
    used = (measured.server_cores - quiet_cores) * SECONDS / RANKS
    yield Figure("agents that return after a restart", len(back), "agents", RANKS, at_least=True)
    yield Figure("the last of them after", max(back, default=inf), "s", 8.0)
    yield Figure("CPU of the server for each, beyond what it uses later", used * 1e3, "ms", 1.0)
    for call, durations in measured.seen.items():
        yield Figure(f"meanwhile: {call}, p99", percentile(durations, 99), "s", 0.5)

"""Real agents with real programs, started as the launcher starts them. `agents` ends all of them when it closes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.local_launcher import sweep
from hai_backend.launch.rank_dirs import agent_variables, make, path_of
from tests.silence import witness
from tests.silence.lease_server import LeaseServer, Rank

_START_SECONDS = 60.0  # generous: the machine may start ten agents at once
_TRIES = 8  # an agent that starts so slowly that its short lease expires before does not attach
_GONE_SECONDS = 10.0
_NONE: Mapping[str, str] = MappingProxyType({})


def argv(directory: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command of a rank's program, which writes its records into `directory`."""
    return [sys.executable, "-u", str(witness.PROGRAM), str(directory), *arguments]


class Agents:
    """Starts agents in any number of home directories. Use `agents`."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self._homes: set[Path] = set()
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(
        self,
        home: Path,
        key: RankKey,
        arguments: Sequence[str],
        *prefix: str,
        variables: Mapping[str, str] = _NONE,
    ) -> Rank:
        """Start an agent, and return its rank once the program has started. `prefix` precedes the agent's command.

        Raises TimeoutError if the program does not start.
        """
        async with self._server.starts:
            return await self._start(home, key, arguments, prefix, variables)

    async def _start(
        self,
        home: Path,
        key: RankKey,
        arguments: Sequence[str],
        prefix: Sequence[str],
        variables: Mapping[str, str],
    ) -> Rank:
        for _ in range(_TRIES):
            rank = self._server.expect(key, arguments)
            process = await self._spawn(home, key, prefix, variables)
            waits = [asyncio.create_task(wait) for wait in (rank.started.wait(), process.wait())]
            await asyncio.wait(waits, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if rank.started.is_set():
                return rank
            await asyncio.to_thread(sweep, home)
        raise TimeoutError(f"the agent of {key} did not start its program")

    async def reap(self) -> None:
        """Wait until all agents have ended by themselves, for at most ten seconds."""
        waits = [asyncio.create_task(process.wait()) for process in self._processes]
        if waits:
            await asyncio.wait(waits, timeout=_GONE_SECONDS)
        for wait in waits:
            wait.cancel()

    async def close(self) -> None:
        """End all agents and programs."""
        for home in self._homes:
            await asyncio.to_thread(sweep, home)
        for process in self._processes:
            await process.wait()

    async def _spawn(
        self, home: Path, key: RankKey, prefix: Sequence[str], variables: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        self._homes.add(home)
        directory = path_of(home, key)
        make(directory, RankLaunch(key, "node1", "secret"), ())
        ours = {**os.environ, **variables}
        with (directory / "agent.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *prefix,
                *(sys.executable, "-P", "-m", "hai_backend.agent", str(directory)),
                env=agent_variables(directory, key, ours, Path(sys.executable).parent),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process


@asynccontextmanager
async def agents(server: LeaseServer) -> AsyncIterator[Agents]:
    made = Agents(server)
    try:
        yield made
    finally:
        await made.close()

"""The launcher of one machine. It runs the agent of each rank as a separate process that outlives the server.

It watches agents with pidfds, which also works for agents that an earlier server started. When an agent has ended, the
launcher kills the remaining processes of the rank before it reports the node as free. In this module, to clear a rank
means to kill its processes and remove its directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hai.client.connection.cancellation import cancelled_only_from_outside
from hai_backend.domain.gpu import GpuState
from hai_backend.launch import local_nodes, pidfd, processes, rank_dirs
from hai_backend.launch.base import (
    KillRequest,
    LauncherEvent,
    LaunchFailed,
    NodeList,
    RankKey,
    RankLaunch,
    RankList,
    RankTerminated,
)
from hai_backend.launch.nvml import GpuReader
from hai_backend.launch.staging import CheckpointStaging, default_root

log = logging.getLogger(__name__)
_CLEARING = -1  # instead of a pidfd: the agent has ended, and the rank is being cleared
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 30.0  # time to finish the clearing of ranks when the server ends


def sweep(home: Path, staging: CheckpointStaging | None = None) -> None:
    """Kill all agents and programs of this home and remove their directories. `hai down` calls it.

    Staged checkpoints are then written to disk; by default, those of the directory that default_root() returns.
    """
    home = home.resolve()
    directories = set(rank_dirs.existing(home).values())
    directories |= {directory for _, directory in processes.marked_processes(home / "run")}
    survivors = rank_dirs.clear(home, directories)
    for process in survivors:
        log.warning("process %d of %s could not be ended", process.pid, home)
    for error in (staging or CheckpointStaging(default_root(home))).finish():
        log.warning("%s", error)


class ProcessLauncher:
    """Implements launch.base.Launcher with local processes."""

    name = "process"

    def __init__(
        self, home: Path, layout: local_nodes.Layout, staging: CheckpointStaging | None = None
    ) -> None:
        """Without `staging`, programs write their checkpoints directly to disk."""
        self._home = home.resolve()
        self._staging = staging
        gpus = local_nodes.count_gpus()
        self._has_gpus = gpus > 0
        self._gpu_reader: GpuReader | None = None  # made when the GPUs are read for the first time
        self._nodes = {n.node.name: n for n in local_nodes.divide(layout, gpus)}
        self._agents: dict[RankKey, int] = {}
        self._events: asyncio.Queue[LauncherEvent | None] = asyncio.Queue()
        self._clearing: set[asyncio.Task[None]] = set()

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """See Launcher."""
        for rank in ranks:
            if rank.key not in self._agents and not self._adopt(rank.key):
                await self._start_or_report(rank)

    async def write_checkpoints(self, key: RankKey) -> None:
        """See Launcher. Nothing to do, because a writer of this machine watches all directories."""

    async def kill(self, request: KillRequest) -> None:
        """See Launcher. Only the key of the request is used, because all processes are visible on this machine.

        The agent is killed last. While it runs, every process of the rank is one of its descendants.
        """
        key = request.key
        if key not in self._agents and not self._adopt(key):
            self._clear(key)
        elif self._agents[key] != _CLEARING:
            self._clear_agent(key)

    async def events(self) -> AsyncIterator[LauncherEvent]:
        """See Launcher."""
        nodes = self._nodes.values()
        yield NodeList(tuple(n.node for n in nodes), local_nodes.packed_groups(nodes))
        ranks = await self._list()
        if self._staging is not None:
            # now it knows which tasks have ranks
            self._staging.start(self._events.put_nowait)
        yield RankList(ranks)
        while (event := await self._events.get()) is not None:
            yield event

    async def read_gpus(self) -> Mapping[str, tuple[GpuState, ...]]:
        """See Launcher. The driver is asked in a thread, because it may be slow."""
        return await asyncio.to_thread(self._read_gpus) if self._has_gpus else {}

    def _read_gpus(self) -> Mapping[str, tuple[GpuState, ...]]:
        if self._gpu_reader is None:
            self._gpu_reader = GpuReader()
        states = {state.index: state for state in self._gpu_reader.read()}
        return {
            name: tuple(
                replace(states[real], index=i)
                for i, real in enumerate(node.gpu_indices)
                if real in states
            )
            for name, node in self._nodes.items()
        }

    async def close(self) -> None:
        """See Launcher."""
        for agent in self._agents.values():
            if agent != _CLEARING:
                asyncio.get_running_loop().remove_reader(agent)
                pidfd.reap_later(agent)
        self._agents.clear()
        if self._staging is not None:
            self._staging.close()
        if self._clearing:
            await asyncio.wait(self._clearing, timeout=_CLOSE_SECONDS)
        for clearing in self._clearing:
            clearing.cancel()
        self._events.put_nowait(None)

    async def _list(self) -> frozenset[RankKey]:
        """Watch all agents that run, and clear the other ranks. Return the ranks that exist."""
        dead = {
            key: directory
            for key, directory in rank_dirs.existing(self._home).items()
            if key not in self._agents and not self._adopt(key)
        }
        await self._clear_until_done(list(dead.values()))
        for key, directory in dead.items():
            # a process of the rank could not be killed, so the rank still exists
            if directory.exists():
                self._clear(key)
        return frozenset(self._agents)

    async def _start_or_report(self, rank: RankLaunch) -> None:
        """Start the agent of a rank, or report LaunchFailed."""
        directory = rank_dirs.path_of(self._home, rank.key)
        if rank.node not in self._nodes:
            reason = f"this machine has no node {rank.node}; it has {', '.join(self._nodes)}"
            self._events.put_nowait(LaunchFailed(rank.key, reason, unschedulable=True))
            return
        try:
            if directory.exists():  # left by an agent that has ended
                await self._clear_until_done([directory])
            self._start(rank, directory)
        except OSError as error:
            await self._clear_until_done([directory])
            self._release_memory(rank.key.task_id)
            reason = f"the agent of rank {rank.key} could not be started: {error}"
            self._events.put_nowait(LaunchFailed(rank.key, reason))

    def _start(self, rank: RankLaunch, directory: Path) -> None:
        real = self._nodes[rank.node].gpu_indices
        chosen = tuple(real[i] for i in rank.gpu_indices if i < len(real))
        rank_dirs.make(directory, rank, chosen if self._has_gpus else None)
        pid = _spawn(directory, rank.key, self._staging_variables(rank))
        processes.write_pid_file(directory / rank_dirs.AGENT_PID, pid)
        self._watch(rank.key, pid)

    def _staging_variables(self, rank: RankLaunch) -> dict[str, str]:
        if self._staging is None or rank.run.durable_before_leaving:
            return {}
        return self._staging.variables(rank.key.task_id)

    def _adopt(self, key: RankKey) -> bool:
        """Watch an agent that an earlier server started. Return False if it does not run."""
        record = rank_dirs.path_of(self._home, key) / rank_dirs.AGENT_PID
        agent = processes.read_pid_file(record)
        if agent is None:
            return False
        try:
            self._watch(key, agent.pid)
        except ProcessLookupError:
            return False
        # Without a valid pid file, the agent has ended, and the watched pid may belong to another process.
        if processes.read_pid_file(record) is None:
            self._clear_agent(key)
        return True

    def _watch(self, key: RankKey, pid: int) -> None:
        self._agents[key] = agent = os.pidfd_open(pid)
        if self._staging is not None:
            self._staging.use(key.task_id)
        asyncio.get_running_loop().add_reader(agent, self._clear_agent, key)

    def _clear_agent(self, key: RankKey) -> None:
        """Clear the rank of an agent that has ended or must end."""
        agent = self._agents[key]
        asyncio.get_running_loop().remove_reader(agent)
        self._clear(key, agent)

    def _clear(self, key: RankKey, agent: int | None = None) -> None:
        """Clear a rank in the background. `agent` is the pidfd of its agent, if the agent was watched."""
        self._agents[key] = _CLEARING
        clearing = asyncio.ensure_future(self._clear_and_report(key, agent))
        self._clearing.add(clearing)
        clearing.add_done_callback(self._clearing.discard)

    async def _clear_and_report(self, key: RankKey, agent: int | None) -> None:
        """Clear a rank, and report RankTerminated when no process of it remains."""
        directory = rank_dirs.path_of(self._home, key)
        why = rank_dirs.failure_of(directory)
        while remaining := await self._clear_until_done(
            [directory]
        ):  # the node is free only when no process remains
            pids = ", ".join(str(process.pid) for process in remaining)
            log.error("cannot kill processes %s of rank %s; trying again", pids, key)
        if agent is not None:
            pidfd.reap(agent)
        self._agents.pop(key, None)
        self._events.put_nowait(RankTerminated(key, why))
        self._release_memory(key.task_id)

    def _release_memory(self, task_id: int) -> None:
        """Free the memory for checkpoints of a task that has no rank any more."""
        if self._staging is not None and all(a.task_id != task_id for a in self._agents):
            self._staging.release(task_id)

    async def _clear_until_done(self, directories: Sequence[Path]) -> Sequence[processes.Process]:
        """Clear ranks. Retry after every error, such as too many open files, because processes may still run.

        Return the processes that could not be killed.
        """
        while True:
            try:
                with cancelled_only_from_outside("clearing ranks"):
                    return await asyncio.to_thread(rank_dirs.clear, self._home, directories)
            except (
                Exception
            ) as error:  # without a retry, the rank would never be reported as terminated
                log.error("cannot clear ranks; trying again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)


def _spawn(directory: Path, key: RankKey, variables: Mapping[str, str]) -> int:
    """Start an agent in its own session, and return its pid. -P keeps the rank's directory off its import path."""
    inherited = rank_dirs.agent_variables(directory, key, os.environ, Path(sys.executable).parent)
    with (directory / "agent.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hai_backend.agent", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={**inherited, **variables},
            start_new_session=True,
        )
    process.returncode = 0  # the pidfd is watched, so Popen must neither wait nor warn
    return process.pid

"""The GPUs of nodes: their models, memory, use and temperature.

On one machine, the launcher reads them when somebody asks. In pods, agents report the GPUs of their ranks, so that GPUs
which no rank holds are unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.scheduling.binder import gpus_of
from hai_backend.domain.gpu import GpuState, read_gpu_state
from hai_backend.domain.node import Node
from hai_backend.domain.task import Task
from hai_backend.launch.base import RankKey

_FRESH_SECONDS = 2.0  # for so long, all callers get the same reading
_PATIENCE_SECONDS = 2.0  # a broken GPU may not answer; callers then get the previous reading
_KEEP_SECONDS = 60.0  # agents report every 10 seconds

Gpus = tuple[GpuState, ...]


class GpuSource(Protocol):
    """The part of a launcher that is used here."""

    async def read_gpus(self) -> Mapping[str, Gpus]: ...


class Cluster(Protocol):
    """The current nodes."""

    def nodes(self) -> Mapping[str, Node]: ...


class GpuStates:
    """The newest state of each GPU. `refresh` asks the launcher, and `record` is called for reports of agents."""

    def __init__(self, launcher: GpuSource, cluster: Cluster, clock: Clock) -> None:
        self._launcher = launcher
        self._cluster = cluster
        self._clock = clock
        self._by_node: Mapping[str, Gpus] = {}
        self._reading: asyncio.Task[Mapping[str, Gpus]] | None = None
        self._read_at = float("-inf")
        self._reports: dict[RankKey, tuple[float, Gpus]] = {}

    def record(self, key: RankKey, gpus: Iterable[GpuState]) -> None:
        """Record the report of an agent. Reports that are not renewed are forgotten."""
        now = self._clock.now()
        if key not in self._reports:
            old = [k for k, (at, _) in self._reports.items() if now - at > _KEEP_SECONDS]
            for expired in old:
                del self._reports[expired]
        sound = (state for gpu in gpus if (state := read_gpu_state(gpu)) is not None)
        self._reports[key] = now, tuple(sound)

    async def refresh(self) -> None:
        """Ask the launcher, unless it has just answered. Return soon even if it does not answer."""
        if self._reading is None:
            if self._clock.now() - self._read_at < _FRESH_SECONDS:
                return
            self._reading = asyncio.ensure_future(self._launcher.read_gpus())
        reading = self._reading
        await asyncio.wait({reading}, timeout=_PATIENCE_SECONDS)
        if reading.done() and self._reading is reading:
            self._reading, self._read_at = None, self._clock.now()
            self._by_node = reading.result()

    def close(self) -> None:
        """Stop waiting for the launcher."""
        if self._reading is not None:
            self._reading.cancel()

    def of_node(self, name: str, tenants: Iterable[tuple[Task, int]]) -> Gpus:
        """Return the GPUs of a node. `tenants` are the tasks on it with the indices of their ranks there."""
        if name in self._by_node:
            return self._by_node[name]
        if not self._reports:
            return ()
        gpus = (state for task, rank in tenants for state in self.of_rank(task, rank))
        return tuple(sorted(gpus, key=lambda state: state.index))

    def of_rank(self, task: Task, index: int) -> Gpus:
        """Return the GPUs of a rank of the current run, with their indices within the node."""
        if task.run is None:
            return ()
        rank = task.run.ranks[index]
        own = gpus_of(task, rank, self._cluster.nodes().get(rank.node))
        if rank.state.terminated or not own:
            return ()
        if rank.node in self._by_node:
            return tuple(state for state in self._by_node[rank.node] if state.index in own)
        return self._reported(RankKey(task.id, task.run.number, index), own)

    def _reported(self, key: RankKey, own: tuple[int, ...]) -> Gpus:
        """Return what the agent has reported. In a pod, GPUs are numbered from 0, so they are renumbered."""
        at, gpus = self._reports.get(key, (float("-inf"), ()))
        if self._clock.now() - at > _KEEP_SECONDS:
            return ()
        pairs = zip(own, gpus, strict=False)
        return tuple(replace(state, index=index) for index, state in pairs)

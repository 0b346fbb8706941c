"""The parts of the server that AgentService needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.environments.pinning import EnvironmentPinning
from hai_backend.api.protocols import Cluster
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.controllers.tasks.checkpoints import Report
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import Conflict
from hai_backend.domain.gpu import GpuState
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared_dirs import PathInRank
from hai_backend.domain.task import RunState, Task
from hai_backend.domain.usage import Use
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle.rules.transition import may_continue


class Logs(Protocol):
    def append(self, key: RankKey, offset: int, data: bytes) -> int: ...
    def size(self, key: RankKey) -> int: ...
    def show(self, key: RankKey, bar: str) -> None: ...


async def _no_token(task: Task) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """The parts of the server that AgentService needs, and checks of the rank that an agent runs."""

    task_manager: TaskManager
    connected_agents: ConnectedAgents
    executor: Executor
    logs: Logs
    confirm: Callable[[], Awaitable[None]]  # raises Deposed if another server leads
    clock: Clock
    secret: bytes  # the key of run tokens
    cluster: Cluster
    path_in_rank: PathInRank
    environment_pinning: EnvironmentPinning
    workspace_path: Callable[[Task], str]  # empty if the task names no workspace
    record_checkpoint: Callable[[RankKey, Report], None]
    record_use: Callable[[RankKey, Use], None]
    record_gpus: Callable[[RankKey, Sequence[GpuState]], None]
    tunnels: Tunnels
    base_url: Callable[[int, str], str]  # of a service of a task, for browsers
    record_services: Callable[[Task, RankKey, pb.ServicesReported], None]
    check_level: Callable[[Task, int], Priority]  # a level for a program; raises Invalid
    make_owner_token: Callable[[Task], Awaitable[str]] = (
        _no_token  # for the owner of a dev container
    )
    is_lease_fresh: Callable[[], bool] = lambda: True  # false if another server may lead
    message_received: Callable[[RankKey], None] = lambda key: None
    # seconds for which the agents of a task may hold lines
    log_delay: Callable[[int], float] = lambda task_id: 0.0
    # seconds over which agents spread their return after their streams have broken
    return_within: Callable[[], float] = lambda: 0.0

    async def get_task(self, key: RankKey) -> Task:
        """Return the task if the rank belongs to its present run and has not ended. Raises Conflict FENCED."""
        task = await self.task_manager.get(key.task_id)
        run = task.run
        if (
            run is None
            or run.number != key.run
            or run.state is RunState.ENDED
            or key.rank >= len(run.ranks)
            or run.ranks[key.rank].state.terminated
        ):
            raise Conflict(f"rank {key} has ended: end its program and exit", reason="FENCED")
        return task

    def may_continue(self, key: RankKey) -> bool:
        """Say whether the lease of a rank is renewed. Reads memory only, because heartbeats need fast answers."""
        task = self.task_manager.unfinished().get(key.task_id)
        run = task.run if task is not None else None
        if run is None or run.number != key.run or key.rank >= len(run.ranks):
            return False
        return may_continue(run, run.ranks[key.rank]) and self.is_lease_fresh()

"""What the server's side of an agent's stream needs of the rest of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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


def _nobody_listens(key: RankKey) -> None:
    return None


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """One value for the whole service."""

    task_manager: TaskManager
    hub: ConnectedAgents
    executor: Executor
    logs: Logs
    confirm: Callable[[], Awaitable[None]]  # raises Deposed when another server leads
    clock: Clock
    secret: bytes
    cluster: Cluster
    seen: PathInRank
    environment: EnvironmentPinning
    workspace: Callable[[Task], str]  # where its program begins; empty: nobody said
    report: Callable[[RankKey, Report], None]  # its program has a checkpoint
    used: Callable[[RankKey, Use], None]  # it was measured
    tunnels: Tunnels
    base_url: Callable[[int, str], str]  # of a service of a task, as browsers see it
    services_said: Callable[[Task, RankKey, pb.ServicesReported], None]
    level: Callable[[Task, int], Priority]  # a level that a program asks for; raises Invalid
    owner_token: Callable[[Task], Awaitable[str]] = _no_token  # of a dev container's owner
    fresh: Callable[[], bool] = lambda: True  # whether this server can be sure that it leads
    heard: Callable[[RankKey], None] = _nobody_listens  # called with each message of an agent

    async def current(self, key: RankKey) -> Task:
        """The task, if this rank may still speak for it. Raises Conflict FENCED."""
        task = await self.task_manager.get(key.task_id)
        run = task.run
        if (
            run is None
            or run.number != key.run
            or run.state is RunState.ENDED
            or key.rank >= len(run.ranks)
            or run.ranks[key.rank].state.terminated
        ):
            raise Conflict(f"rank {key} is over: end its program and leave", reason="FENCED")
        return task

    def may_continue(self, key: RankKey) -> bool:
        """Whether the lease of a rank is renewed. Asks no database: a heartbeat is answered at once."""
        task = self.task_manager.unfinished().get(key.task_id)
        run = task.run if task is not None else None
        if run is None or run.number != key.run or key.rank >= len(run.ranks):
            return False
        return may_continue(run, run.ranks[key.rank]) and self.fresh()

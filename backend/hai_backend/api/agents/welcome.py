"""What an agent is told first: what to run, with which variables, where, and how far its log has come."""

from __future__ import annotations

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.agents.protocols import AgentDeps
from hai_backend.api.containers.containers import is_main
from hai_backend.controllers.tasks import rank_command
from hai_backend.domain.shared_dirs import checkpoints_of, container_of
from hai_backend.domain.spec import JUPYTER, ServiceSpec, TaskType
from hai_backend.domain.task import Task
from hai_backend.launch.base import RankKey


async def welcome(ports: AgentDeps, key: RankKey, *, started: bool) -> pb.AttachResponse:
    """The first message to an agent. Raises Conflict FENCED. `started`: its program runs already."""
    task = await ports.current(key)
    assert task.run is not None
    rank, spec, options = task.run.ranks[key.rank], task.spec.spec, task.spec.options
    said = pb.AgentWelcome(
        argv=rank_command.argv(task, rank),
        environments=_environments(ports, task, key),
        workspace=ports.workspace(task) or _home_of(ports, task),
        log_offset=ports.logs.size(key),
        watchdog_seconds=options.watchdog_time,
        suspend_signal=options.suspend_signal,
        whole_life_state=task.whole_life_state,
        git_remote_repo=spec.git_remote_repo,
        git_target_revision=spec.git_target_revision,
        services=[_service(ports, task, s) for s in task.spec.services if key.rank in s.rank],
        container=task.spec.task_type is TaskType.JUPYTER,
        owner_token="" if started else await ports.owner_token(task),
        environment=await ports.environment(task),
    )
    return pb.AttachResponse(welcome=said)


def _environments(ports: AgentDeps, task: Task, key: RankKey) -> dict[str, str]:
    assert task.run is not None
    rank = task.run.ranks[key.rank]
    node, checkpoints = ports.cluster.nodes().get(rank.node), ports.seen(checkpoints_of(task.id))
    home = ports.environment.haienv_variables(task.user)
    return {**home, **rank_command.variables(task, task.run, rank, node, checkpoints)}


def _home_of(ports: AgentDeps, task: Task) -> str:
    """A dev container that clones nothing works in a directory of its own, which stays."""
    own = task.spec.task_type is TaskType.JUPYTER and not task.spec.spec.git_remote_repo
    return ports.seen(container_of(task.id)) if own else ""


def _service(ports: AgentDeps, task: Task, service: ServiceSpec) -> pb.AgentServiceSpec:
    return pb.AgentServiceSpec(
        name=service.name,
        type=service.type.value,
        port=0 if service.name == JUPYTER else service.port,
        startup_script=service.startup_script,
        base_url=ports.base_url(task.id, "" if is_main(task, service) else service.name),
    )

"""Builds the welcome, the first message to an agent: its command, variables, directory and log offset."""

from __future__ import annotations

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.agents.service_deps import AgentDeps
from hai_backend.api.containers.containers import is_main
from hai_backend.controllers.tasks import rank_command
from hai_backend.domain.shared_dirs import checkpoints_of, container_of
from hai_backend.domain.spec import JUPYTER, ServiceSpec, TaskType
from hai_backend.domain.task import Task
from hai_backend.launch.base import RankKey


async def make_welcome(deps: AgentDeps, key: RankKey, *, started: bool) -> pb.AttachResponse:
    """Return the welcome. `started` says whether the program runs already. Raises Conflict FENCED."""
    task = await deps.get_task(key)
    assert task.run is not None
    rank, spec, options = task.run.ranks[key.rank], task.spec.spec, task.spec.options
    welcome = pb.AgentWelcome(
        argv=rank_command.argv(task, rank),
        environments=_environments(deps, task, key),
        workspace=deps.workspace_path(task) or _container_directory(deps, task),
        log_offset=deps.logs.size(key),
        watchdog_seconds=options.watchdog_time,
        suspend_signal=options.suspend_signal,
        whole_life_state=task.whole_life_state,
        git_remote_repo=spec.git_remote_repo,
        git_target_revision=spec.git_target_revision,
        services=[_service(deps, task, s) for s in task.spec.services if key.rank in s.rank],
        container=task.spec.task_type is TaskType.JUPYTER,
        owner_token="" if started else await deps.make_owner_token(task),
        environment=await deps.environment_pinning(task),
    )
    return pb.AttachResponse(welcome=welcome)


def _environments(deps: AgentDeps, task: Task, key: RankKey) -> dict[str, str]:
    assert task.run is not None
    rank = task.run.ranks[key.rank]
    node = deps.cluster.nodes().get(rank.node)
    checkpoints = deps.path_in_rank(checkpoints_of(task.id))
    haienv_variables = deps.environment_pinning.haienv_variables(task.user)
    return {**haienv_variables, **rank_command.variables(task, task.run, rank, node, checkpoints)}


def _container_directory(deps: AgentDeps, task: Task) -> str:
    """Return the permanent directory of a dev container that clones no repository; empty for other tasks."""
    has_directory = task.spec.task_type is TaskType.JUPYTER and not task.spec.spec.git_remote_repo
    return deps.path_in_rank(container_of(task.id)) if has_directory else ""


def _service(deps: AgentDeps, task: Task, service: ServiceSpec) -> pb.AgentServiceSpec:
    return pb.AgentServiceSpec(
        name=service.name,
        type=service.type.value,
        port=0 if service.name == JUPYTER else service.port,
        startup_script=service.startup_script,
        base_url=deps.base_url(task.id, "" if is_main(task, service) else service.name),
    )

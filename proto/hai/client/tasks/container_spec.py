"""Builds the task of a dev container, for `hai container create` and the panel in JupyterLab."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hai.client.errors import UsageError
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, ServiceSpec, TaskSpec

if TYPE_CHECKING:
    from hai.client.resources.nodes import Nodes

KINDS = ("shared", "dedicated", "spot")
_CPUS, _MEMORY_GB = 2, 4  # defaults for a share of a node
_MARGIN_SECONDS = 2.0  # added to the warning time: a container may save for this long after it


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """The choices of a user. Without a kind, the node group decides it. Times are in seconds, memory is in GB."""

    name: str = "lab"
    kind: str | None = None
    gpu: int = 0
    cpu: int = 0
    memory: int = 0
    group: str = ""
    priority: int | None = None
    image: str = ""
    py_venv: str = ""
    workspace: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    lifetime: float = 0
    idle_timeout: float = 0
    grace: float | None = None
    shared_in_group: bool = False


async def container_spec(nodes: Nodes, options: ContainerOptions) -> TaskSpec:
    """Return the spec of the task. Raises UsageError.

    By default the task gets a share of a node if the group shares its nodes, else a whole node, which has at least
    the GPUs of the options.
    """
    requests_share = bool(options.cpu or options.memory or options.kind == "shared")
    requests_resources = requests_share or bool(options.gpu)
    if options.kind == "dedicated" and requests_resources:
        raise UsageError(
            "a dedicated container has its node to itself; leave gpu, cpu and memory out"
        )
    spec = _base_spec(options)
    packed = await _is_packed(nodes, options.group)
    if packed is False and requests_share:
        raise UsageError(
            f"nodes of group {_group_name(options.group)} are given whole; choose a group whose nodes are shared,"
            " or leave kind shared, cpu and memory out to take a whole node"
        )
    if packed is not False and (requests_resources or (options.kind is None and packed)):
        spec.resource.cpu = spec.resource.cpu or _CPUS
        spec.resource.memory = spec.resource.memory or _MEMORY_GB
    return spec


def _base_spec(options: ContainerOptions) -> TaskSpec:
    """Return the spec without defaults for resources. The program sleeps: people work in its services."""
    return TaskSpec(
        version=2,
        name=options.name,
        task_type="jupyter",
        priority=options.priority,
        spec=ProgramSpec(
            entrypoint="sleep",
            parameters=["infinity"],
            entrypoint_executable=True,
            workspace=options.workspace,
            environments=options.variables,
        ),
        resource=_resource(options),
        services=[ServiceSpec(name="jupyter")],
        options=_task_options(options),
    )


def _resource(options: ContainerOptions) -> ResourceSpec:
    return ResourceSpec(
        image=options.image,
        group=options.group,
        is_spot=options.kind == "spot",
        gpu=options.gpu,
        cpu=options.cpu,
        memory=options.memory,
    )


def _task_options(options: ContainerOptions) -> OptionsSpec:
    result = OptionsSpec(
        py_venv=options.py_venv,
        shared_in_group=options.shared_in_group,
        lifetime=int(options.lifetime),
        idle_timeout=int(options.idle_timeout),
    )
    if options.grace is not None:
        result.save_within = options.grace + _MARGIN_SECONDS
    return result


async def _is_packed(nodes: Nodes, group: str) -> bool | None:
    """Return whether nodes of a group are shared, or None if there is no such group, which the server reports."""
    groups = {each.name: each.packed for each in await nodes.groups()}
    return groups.get(_group_name(group))


def _group_name(group: str) -> str:
    return group.partition("#")[0] or "default"

"""A dev container as a task: what `hai container create` and the panel in JupyterLab ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hai.client.errors import UsageError
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, ServiceSpec, TaskSpec

if TYPE_CHECKING:
    from hai.client.client import Client

KINDS = ("shared", "dedicated", "spot")
_CPUS, _MEMORY_GB = 2, 4  # of a share that says nothing
_MARGIN_SECONDS = 2.0  # the server's: to save within that much more than the warning lasts


@dataclass(frozen=True, slots=True)
class Wish:
    """What one may say of a container. Without a kind it is as its group is; times are seconds, memory is GB."""

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


async def container_spec(client: Client, wish: Wish) -> TaskSpec:
    """The task: a share where nodes are shared and nothing else is asked for. Raises UsageError."""
    asked = bool(wish.gpu or wish.cpu or wish.memory)
    if wish.kind == "dedicated" and asked:
        raise UsageError(
            "a dedicated container has its node to itself; leave gpu, cpu and memory out"
        )
    spec = _spec(wish)
    packed = await _is_packed(client, wish.group)
    if packed is False and (asked or wish.kind == "shared"):
        raise UsageError(
            f"nodes of group {_name(wish.group)} are given whole; choose a group whose nodes are shared,"
            " or leave kind shared, gpu, cpu and memory out to take a whole node"
        )
    if asked or wish.kind == "shared" or (wish.kind is None and packed):
        spec.resource.cpu = spec.resource.cpu or _CPUS
        spec.resource.memory = spec.resource.memory or _MEMORY_GB
    return spec


def _spec(wish: Wish) -> TaskSpec:
    """Its program does nothing: people work in its services."""
    return TaskSpec(
        version=2,
        name=wish.name,
        task_type="jupyter",
        priority=wish.priority,
        spec=ProgramSpec(
            entrypoint="sleep",
            parameters=["infinity"],
            entrypoint_executable=True,
            workspace=wish.workspace,
            environments=wish.variables,
        ),
        resource=_resource(wish),
        services=[ServiceSpec(name="jupyter")],
        options=_options(wish),
    )


def _resource(wish: Wish) -> ResourceSpec:
    return ResourceSpec(
        image=wish.image,
        group=wish.group,
        is_spot=wish.kind == "spot",
        gpu=wish.gpu,
        cpu=wish.cpu,
        memory=wish.memory,
    )


def _options(wish: Wish) -> OptionsSpec:
    chosen = OptionsSpec(
        py_venv=wish.py_venv,
        shared_in_group=wish.shared_in_group,
        lifetime=int(wish.lifetime),
        idle_timeout=int(wish.idle_timeout),
    )
    if wish.grace is not None:
        chosen.save_within = wish.grace + _MARGIN_SECONDS
    return chosen


async def _is_packed(client: Client, group: str) -> bool | None:
    """None: there is no such group, which is the server's to say."""
    groups = {each.name: each.packed for each in await client.nodes.groups()}
    return groups.get(_name(group))


def _name(group: str) -> str:
    return group.partition("#")[0] or "default"

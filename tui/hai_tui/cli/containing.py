"""A dev container as a task: what `hai container create` asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, ServiceSpec, TaskSpec
from hai_tui.cli.texts import text

if TYPE_CHECKING:
    from hai.client.client import Client

_CPUS, _MEMORY_GB = 2, 4  # of a share that says nothing
_MARGIN_SECONDS = 2.0  # the server's: to save within that much more than the warning lasts


def spec_of(name: str, options: Mapping[str, Any]) -> TaskSpec:
    """The task. Its program does nothing: people work in its services."""
    from hai_tui.cli.submit import variables

    chosen = OptionsSpec(
        py_venv=options["py_venv"],
        shared_in_group=options["shared_in_group"],
        lifetime=int(options["lifetime"] or 0),
        idle_timeout=int(options["idle_timeout"] or 0),
    )
    if options["grace"] is not None:
        chosen.save_within = options["grace"] + _MARGIN_SECONDS
    return TaskSpec(
        version=2,
        name=name,
        task_type="jupyter",
        priority=options["priority"],
        spec=ProgramSpec(
            entrypoint="sleep",
            parameters=["infinity"],
            entrypoint_executable=True,
            workspace=options["workspace"],
            environments=variables((), options["env"]),
        ),
        resource=_resource(options),
        services=[ServiceSpec(name="jupyter")],
        options=chosen,
    )


def _resource(options: Mapping[str, Any]) -> ResourceSpec:
    return ResourceSpec(
        image=options["image"],
        group=options["group"],
        is_spot=options["kind"] == "spot",
        gpu=options["gpu"],
        cpu=options["cpu"],
        memory=options["memory"],
    )


async def with_kind(client: Client, spec: TaskSpec, options: Mapping[str, Any]) -> TaskSpec:
    """A share where nodes are shared and nothing else is asked for; what a share leaves open is filled in."""
    asked = spec.resource.gpu or spec.resource.cpu or spec.resource.memory
    shared = options["kind"] == "shared" or bool(asked)
    if options["kind"] == "dedicated" and asked:
        raise click.UsageError(
            "a dedicated container has its node to itself; leave --gpu, --cpu and --memory out"
        )
    if options["kind"] is None and not asked:
        shared = await _is_packed(client, spec.resource.group)
    if shared:
        spec.resource.cpu = spec.resource.cpu or _CPUS
        spec.resource.memory = spec.resource.memory or _MEMORY_GB
    return spec


async def _is_packed(client: Client, group: str) -> bool:
    name = group.partition("#")[0] or "default"
    return any(g.packed for g in await client.nodes.groups() if g.name == name)


def printed_by(names: Sequence[str], service: str) -> re.Pattern[str]:
    """Lines of a service, or of all: they begin with its name. Raises UsageError."""
    if service and service not in names:
        known = ", ".join(names) or "none"
        raise click.UsageError(f"there is no service {service!r}; there are: {known}")
    wanted = [service] if service else names
    return re.compile(rf"^\[(?:{'|'.join(map(re.escape, wanted))})\] ")


def agreed(ids: Sequence[int]) -> bool:
    """Ask at a terminal; elsewhere --yes must have been given."""
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError("this removes files; say --yes, or --keep-files")
    return click.confirm(text("container.confirm", ids=", ".join(map(str, ids))), err=True)

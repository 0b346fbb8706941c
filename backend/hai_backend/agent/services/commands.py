"""Defines for each kind of service how to start it, connect to it, and check whether it answers and is used."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hai.task import env
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.server import tunnel_endpoint
from hai_backend.agent.server.tunnel_endpoint import CannotServe, Connection, Unreachable
from hai_backend.agent.services import jupyter
from hai_backend.domain.spec import JUPYTER

_LOCAL = "local"


async def _never_known() -> float | None:
    return None


@dataclass(frozen=True, slots=True)
class Command:
    """The way to run a service.

    An empty `argv` means that the program starts the service, and that the agent only watches its port.
    """

    argv: tuple[str, ...]
    cwd: Path
    variables: Mapping[str, str]
    connect: Callable[[], Awaitable[Connection]]  # raises Unreachable
    is_answering: Callable[[], Awaitable[bool]]
    read_idle_seconds: Callable[[], Awaitable[float | None]] = field(default=_never_known)
    prepare: Callable[[], None] = field(default=lambda: None)  # raises CannotServe


def make_command(
    spec: pb.AgentServiceSpec, directory: Path, workspace: Path, variables: Mapping[str, str]
) -> Command:
    """Return the command of a service."""
    service_variables = {**variables, env.SERVICE_NAME: spec.name, env.BASE_URL: spec.base_url}
    if spec.name == JUPYTER:
        return _make_jupyter_command(spec, directory, workspace, service_variables)
    is_local = spec.type == _LOCAL
    connect = (
        _refuse_connection if is_local else (lambda: tunnel_endpoint.connect_to_port(spec.port))
    )
    return Command(
        argv=tuple(shlex.split(spec.startup_script)),
        cwd=workspace,
        variables=service_variables,
        connect=connect,
        is_answering=_always if is_local else (lambda: _can_connect(connect)),
    )


def _make_jupyter_command(
    spec: pb.AgentServiceSpec, directory: Path, workspace: Path, variables: Mapping[str, str]
) -> Command:
    server = jupyter.Server(directory, workspace, spec.base_url)

    def prepare() -> None:
        if why := server.find_fault(variables):
            raise CannotServe(why)
        server.socket.unlink(missing_ok=True)

    return Command(
        argv=server.argv(variables),
        cwd=workspace,
        variables=server.variables(variables),
        connect=lambda: tunnel_endpoint.connect_to_socket(server.socket),
        is_answering=server.is_answering,
        read_idle_seconds=server.read_idle_seconds,
        prepare=prepare,
    )


async def _refuse_connection() -> Connection:
    raise Unreachable("it is local: it has no port")


async def _always() -> bool:
    return True


async def _can_connect(connect: Callable[[], Awaitable[Connection]]) -> bool:
    try:
        connection = await connect()
    except Unreachable:
        return False
    await connection.close()
    return True

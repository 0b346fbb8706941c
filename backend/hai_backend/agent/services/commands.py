"""What a service is made of: its argv, where it listens, and how one can tell that it answers and is in use."""

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


async def _unknown_idleness() -> float | None:
    return None


@dataclass(frozen=True, slots=True)
class Command:
    """Empty argv: somebody else starts it (the program), and only its port is watched."""

    argv: tuple[str, ...]
    cwd: Path
    variables: Mapping[str, str]
    connect: Callable[[], Awaitable[Connection]]  # raises Unreachable
    answers: Callable[[], Awaitable[bool]]
    idle_seconds: Callable[[], Awaitable[float | None]] = field(default=_unknown_idleness)
    prepare: Callable[[], None] = field(default=lambda: None)  # raises CannotServe


def command_of(
    spec: pb.AgentServiceSpec, directory: Path, workspace: Path, variables: Mapping[str, str]
) -> Command:
    """The command of one service."""
    service_variables = {**variables, env.SERVICE_NAME: spec.name, env.BASE_URL: spec.base_url}
    if spec.name == JUPYTER:
        return _jupyter(spec, directory, workspace, service_variables)
    connect = _unreachable if spec.type == _LOCAL else (lambda: tunnel_endpoint.to_port(spec.port))
    return Command(
        argv=tuple(shlex.split(spec.startup_script)),
        cwd=workspace,
        variables=service_variables,
        connect=connect,
        answers=_always if spec.type == _LOCAL else (lambda: _connects(connect)),
    )


def _jupyter(
    spec: pb.AgentServiceSpec, directory: Path, workspace: Path, variables: Mapping[str, str]
) -> Command:
    server = jupyter.Server(directory, workspace, spec.base_url)

    def prepare() -> None:
        if why := server.missing_program(variables):
            raise CannotServe(why)
        server.socket.unlink(missing_ok=True)

    return Command(
        argv=server.argv(variables),
        cwd=workspace,
        variables=server.variables(variables),
        connect=lambda: tunnel_endpoint.to_socket(server.socket),
        answers=server.answers,
        idle_seconds=server.idle_seconds,
        prepare=prepare,
    )


async def _unreachable() -> Connection:
    raise Unreachable("it is local: it has no port")


async def _always() -> bool:
    return True


async def _connects(connect: Callable[[], Awaitable[Connection]]) -> bool:
    try:
        connection = await connect()
    except Unreachable:
        return False
    await connection.close()
    return True

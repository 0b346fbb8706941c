"""Starts the services of the rank together with the program, and controls them on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import container_pb2 as states
from hai_backend.agent.coroutines import Coroutines
from hai_backend.agent.output.output import Output
from hai_backend.agent.output.spool import Spool
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.server.tunnel_endpoint import Connection, Unreachable
from hai_backend.agent.services.service import Service


class Services:
    """All services of the rank. `report` is called when the status of a service has changed."""

    def __init__(
        self,
        reaper: Reaper,
        spool: Spool,
        on_lines: Callable[[], None],
        report: Callable[[], None],
        coroutines: Coroutines,
    ) -> None:
        self._reaper = reaper
        self._make_output = lambda prefix: Output(spool, on_lines, prefix)
        self._report = report
        self._coroutines = coroutines
        self._services: dict[str, Service] = {}

    def start(
        self,
        specs: Sequence[pb.AgentServiceSpec],
        directory: Path,
        workspace: Path,
        variables: Mapping[str, str],
    ) -> None:
        """Start all services. Call it once."""
        if not specs:
            return
        from hai_backend.agent.services import commands  # here, because few ranks have services

        for spec in specs:
            command = commands.make_command(spec, directory, workspace, variables)
            service = Service(
                spec, command, self._make_output, self._reaper, self._report, self._coroutines
            )
            self._services[spec.name] = service
            service.start()

    def statuses(self) -> list[states.ServiceStatus]:
        """Return the status of each service."""
        return [service.status() for service in self._services.values()]

    def control(self, request: pb.ServiceControlled) -> None:
        """Start, stop or restart a service. An unknown name is ignored."""
        service = self._services.get(request.name)
        if service is not None:
            self._coroutines.start("a service", _execute(service, request.action))

    def terminate(self) -> None:
        """Send SIGTERM to all services, because the rank ends."""
        for service in self._services.values():
            service.terminate()

    async def connect(self, name: str) -> Connection:
        """Connect to a service. Raises Unreachable with the state of the service."""
        service = self._services.get(name)
        if service is None:
            raise Unreachable(f"this rank has no service {name}, or it has not been started yet")
        try:
            return await service.command.connect()
        except Unreachable:
            raise Unreachable(f"service {name}: {_describe(service.status())}") from None

    async def read_idle_seconds(self) -> float | None:
        """Return the seconds since a service was last in use; None if that is unknown."""
        idle_times = [await s.command.read_idle_seconds() for s in self._services.values()]
        return min((seconds for seconds in idle_times if seconds is not None), default=None)


async def _execute(service: Service, action: states.ServiceAction.ValueType) -> None:
    if action in (states.SERVICE_ACTION_STOP, states.SERVICE_ACTION_RESTART):
        await service.stop()
    if action in (states.SERVICE_ACTION_START, states.SERVICE_ACTION_RESTART):
        service.start()


def _describe(status: states.ServiceStatus) -> str:
    state_name = states.ServiceState.Name(status.state).removeprefix("SERVICE_STATE_").lower()
    return (
        f"{state_name}: {status.message}"
        if status.message
        else f"{state_name}, and does not answer"
    )

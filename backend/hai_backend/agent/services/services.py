"""The services of this rank: started with the program, stopped and started again on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import container_pb2 as states
from hai_backend.agent.output.output import Output
from hai_backend.agent.output.spool import Spool
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.server.tunnel_endpoint import Connection, Unreachable
from hai_backend.agent.services.service import Service
from hai_backend.agent.task_group import Parts


class Services:
    """All of this rank. `report` is called with all states when one has changed."""

    def __init__(
        self,
        reaper: Reaper,
        spool: Spool,
        grown: Callable[[], None],
        report: Callable[[], None],
        parts: Parts,
    ) -> None:
        self._reaper = reaper
        self._make_output = lambda prefix: Output(spool, grown, prefix)
        self._report = report
        self._parts = parts
        self._services: dict[str, Service] = {}

    def begin(
        self,
        specs: Sequence[pb.AgentServiceSpec],
        directory: Path,
        workspace: Path,
        variables: Mapping[str, str],
    ) -> None:
        """Start them; once."""
        if not specs:
            return
        from hai_backend.agent.services import commands  # few ranks have any

        for spec in specs:
            command = commands.command_of(spec, directory, workspace, variables)
            service = Service(
                spec, command, self._make_output, self._reaper, self._report, self._parts
            )
            self._services[spec.name] = service
            service.start()

    def statuses(self) -> list[states.ServiceStatus]:
        """Of each."""
        return [service.status() for service in self._services.values()]

    def control(self, request: pb.ServiceControlled) -> None:
        """Start, stop or restart one; who does not exist cannot be."""
        service = self._services.get(request.name)
        if service is not None:
            self._parts.begin("a service", _do(service, request.action))

    def terminate(self) -> None:
        """The rank ends."""
        for service in self._services.values():
            service.terminate()

    async def reach(self, name: str) -> Connection:
        """A connection to one. Raises Unreachable, saying how it is."""
        service = self._services.get(name)
        if service is None:
            raise Unreachable(f"this rank has no service {name}, or it has not been started yet")
        try:
            return await service.command.connect()
        except Unreachable as error:
            raise Unreachable(f"service {name}: {_state_text(service.status()) or error}") from None

    async def idle_seconds(self) -> float | None:
        """Since one of them was last in use; None: nobody can say."""
        found = [await s.command.idle_seconds() for s in self._services.values()]
        known_seconds = [seconds for seconds in found if seconds is not None]
        return min(known_seconds, default=None)


async def _do(service: Service, action: states.ServiceAction.ValueType) -> None:
    if action in (states.SERVICE_ACTION_STOP, states.SERVICE_ACTION_RESTART):
        await service.stop()
    if action in (states.SERVICE_ACTION_START, states.SERVICE_ACTION_RESTART):
        service.start()


def _state_text(status: states.ServiceStatus) -> str:
    state_name = states.ServiceState.Name(status.state).removeprefix("SERVICE_STATE_").lower()
    return (
        f"{state_name}: {status.message}"
        if status.message
        else f"{state_name}, and does not answer"
    )

"""Runs one service of the rank: starts it, watches it, restarts it when it fails, and stops it.

The output of a service is written to the log of the rank, with the service's name. The agent polls whether a service
answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import container_pb2 as states
from hai_backend.agent.coroutines import Coroutines
from hai_backend.agent.output.output import Output
from hai_backend.agent.program.program import bind_to_agent
from hai_backend.agent.program.reaper import Child, Reaper
from hai_backend.agent.server.tunnel_endpoint import CannotServe
from hai_backend.launch import processes

if TYPE_CHECKING:
    from hai_backend.agent.services.commands import Command

_POLL_SECONDS, _SLOW_POLL_SECONDS = 0.1, 5.0
_READY_POLL_SECONDS = 10.0  # for a service that has answered
_FIRST_PAUSE = 1.0
# consecutive failures; the count starts again after the service has run for _STEADY_SECONDS
_MAX_FAILURES = 5
_STEADY_SECONDS = 60.0
_STOP_SECONDS = 5.0
_DRAIN_SECONDS = 1.0


class Service:
    """A service. At most one coroutine runs it. `on_change` is called when its status has changed."""

    def __init__(
        self,
        spec: pb.AgentServiceSpec,
        command: Command,
        make_output: Callable[[str], Output],
        reaper: Reaper,
        on_change: Callable[[], None],
        coroutines: Coroutines,
    ) -> None:
        self.spec = spec
        self.command = command
        self._make_output = make_output
        self._reaper = reaper
        self._on_change = on_change
        self._coroutines = coroutines
        self._child: Child | None = None
        self._run_task: asyncio.Task[None] | None = None
        self._state = states.SERVICE_STATE_STARTING
        self._message = ""
        self._starts = 0

    def status(self) -> states.ServiceStatus:
        """Return the status for the server."""
        return states.ServiceStatus(
            name=self.spec.name,
            type=self.spec.type,
            port=self.spec.port,
            state=self._state,
            message=self._message,
            pid=self._child.pid if self._child is not None else 0,
            starts=self._starts,
        )

    def start(self) -> None:
        """Start the service, unless it is running."""
        if self._run_task is None or self._run_task.done():
            work = self._keep_running() if self.command.argv else self._watch()
            self._run_task = self._coroutines.start(f"service {self.spec.name}", work)

    async def stop(self) -> None:
        """Stop the service: send SIGTERM, then SIGKILL to its remaining processes."""
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.wait({self._run_task})
        await self._end()
        self._set_state(states.SERVICE_STATE_STOPPED, "")

    def terminate(self) -> None:
        """Send SIGTERM and return. The rank ends, and then kills the remaining processes."""
        if self._run_task is not None:
            self._run_task.cancel()
        self._signal(signal.SIGTERM)

    async def _keep_running(self) -> None:
        """Run the command, and run it again when it fails."""
        clock, failures = asyncio.get_running_loop().time, 0
        while True:
            started_at = clock()
            try:
                code = await self._run_once()
            except (CannotServe, OSError) as error:
                return self._set_state(states.SERVICE_STATE_FAILED, str(error))
            if code == 0:
                return self._set_state(states.SERVICE_STATE_STOPPED, "its command has ended")
            failures = 1 if clock() - started_at > _STEADY_SECONDS else failures + 1
            text = f"it ended with exit code {code}; its log says why"
            if failures == _MAX_FAILURES:
                text = f"{text}. It is not started again: that was the {failures}th time"
                return self._set_state(states.SERVICE_STATE_FAILED, text)
            self._set_state(states.SERVICE_STATE_STARTING, text)
            await asyncio.sleep(_FIRST_PAUSE * 2.0 ** (failures - 1))

    async def _run_once(self) -> int:
        """Run the command and return its exit code. Raises CannotServe or OSError if it cannot be started."""
        output = self._make_output(f"[{self.spec.name}] ")
        try:
            self._child = child = self._spawn(output)
        except (CannotServe, OSError) as error:
            output.write_notice(str(error))
            raise
        finally:
            output.close_write_end()
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                code = await asyncio.shield(child.ended)
                watching.cancel()
        finally:
            if child.ended.done():
                self._child = None
            # Later, to read the output that other processes of the service still print
            asyncio.get_running_loop().call_later(_DRAIN_SECONDS, output.close)
        return code

    def _spawn(self, output: Output) -> Child:
        self.command.prepare()
        argv, variables = self.command.argv, self.command.variables
        child = self._reaper.spawn(
            bind_to_agent(argv), output.write_end, self.command.cwd, variables
        )
        self._starts += 1
        self._state, self._message = states.SERVICE_STATE_STARTING, ""
        self._on_change()
        return child

    async def _watch(self) -> None:
        """Report whether the service answers. Poll often at first, because users wait for a new service."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            if await self.command.is_answering():
                pause = _READY_POLL_SECONDS
                self._set_state(states.SERVICE_STATE_READY, "")
            else:
                has_answered = self._state is states.SERVICE_STATE_READY
                pause = _POLL_SECONDS if clock() - began < _STEADY_SECONDS else _SLOW_POLL_SECONDS
                message = "it does not answer any more" if has_answered else self._message
                self._set_state(states.SERVICE_STATE_STARTING, message)
            await asyncio.sleep(pause)

    async def _end(self) -> None:
        child = self._child
        if child is None:
            return
        family = processes.descendants(child.pid)  # includes kernels, which have their own sessions
        self._signal(signal.SIGTERM)
        await asyncio.wait((child.ended,), timeout=_STOP_SECONDS)
        self._signal(signal.SIGKILL)
        await asyncio.to_thread(processes.kill_all, lambda: _filter_alive(family))
        self._child = None

    def _signal(self, number: int) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _set_state(self, state: states.ServiceState.ValueType, message: str) -> None:
        if (state, message) != (self._state, self._message):
            self._state, self._message = state, message
            self._on_change()


def _filter_alive(family: Sequence[processes.Process]) -> list[processes.Process]:
    current = ((process, processes.read_process(process.pid)) for process in family)
    return [p for process, p in current if p is not None and p.started == process.started]

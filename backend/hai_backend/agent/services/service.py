"""One service of this rank: started, looked after, started again when it fails, stopped with all that it began.

What it prints goes into the rank's log behind its name. Nothing tells us when a service answers, so it is asked.
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
from hai_backend.agent.output.output import Output
from hai_backend.agent.program.program import bound_to_us
from hai_backend.agent.program.reaper import Child, Reaper
from hai_backend.agent.server.tunnel_endpoint import CannotServe
from hai_backend.agent.task_group import Parts
from hai_backend.launch import processes

if TYPE_CHECKING:
    from hai_backend.agent.services.commands import Command

_POLL_SECONDS, _SLOW_POLL_SECONDS = 0.1, 5.0
_READY_POLL_SECONDS = 10.0  # at one that has answered
_FIRST_PAUSE = 1.0
_FAILURES = 5  # in a row: each before the service has lived for this long
_STEADY_SECONDS = 60.0
_STOP_SECONDS = 5.0
_DRAIN_SECONDS = 1.0


class Service:
    """One of them. What it does is one coroutine at a time; `changed` is called when its state has."""

    def __init__(
        self,
        spec: pb.AgentServiceSpec,
        command: Command,
        make_output: Callable[[str], Output],
        reaper: Reaper,
        changed: Callable[[], None],
        parts: Parts,
    ) -> None:
        self.spec = spec
        self.command = command
        self._make_output = make_output
        self._reaper = reaper
        self._changed = changed
        self._parts = parts
        self._child: Child | None = None
        self._life: asyncio.Task[None] | None = None
        self._state = states.SERVICE_STATE_STARTING
        self._message = ""
        self._starts = 0

    def status(self) -> states.ServiceStatus:
        """What the server is told."""
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
        """Unless it runs."""
        if self._life is None or self._life.done():
            work = self._live() if self.command.argv else self._watch()
            self._life = self._parts.begin(f"service {self.spec.name}", work)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL for whatever of it is left after that."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
        await self._end()
        self._become(states.SERVICE_STATE_STOPPED, "")

    def terminate(self) -> None:
        """The rank ends: SIGTERM, so that it may clear up meanwhile."""
        if self._life is not None:
            self._life.cancel()
        self._signal(signal.SIGTERM)

    async def _live(self) -> None:
        """Start it, look after it, and start it again when it fails."""
        clock, failures = asyncio.get_running_loop().time, 0
        while True:
            began = clock()
            try:
                code = await self._run_once()
            except (CannotServe, OSError) as error:
                return self._become(states.SERVICE_STATE_FAILED, str(error))
            if code == 0:
                return self._become(states.SERVICE_STATE_STOPPED, "its command has ended")
            failures = 1 if clock() - began > _STEADY_SECONDS else failures + 1
            text = f"it ended with exit code {code}; its log says why"
            if failures == _FAILURES:
                text = f"{text}. It is not started again: that was the {failures}th time"
                return self._become(states.SERVICE_STATE_FAILED, text)
            self._become(states.SERVICE_STATE_STARTING, text)
            await asyncio.sleep(_FIRST_PAUSE * 2.0 ** (failures - 1))

    async def _run_once(self) -> int:
        """Its exit code. Raises CannotServe or OSError when it cannot be started."""
        output = self._make_output(f"[{self.spec.name}] ")
        try:
            self._child = child = self._spawn(output)
        except (CannotServe, OSError) as error:
            output.say(str(error))
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
            _close_later(output)
        return code

    def _spawn(self, output: Output) -> Child:
        self.command.prepare()
        argv, variables = self.command.argv, self.command.variables
        child = self._reaper.spawn(bound_to_us(argv), output.write_end, self.command.cwd, variables)
        self._starts += 1
        self._state, self._message = states.SERVICE_STATE_STARTING, ""
        self._changed()
        return child

    async def _watch(self) -> None:
        """Say when it answers, and when it does not any more. People wait for one that was just started."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            if await self.command.answers():
                pause = _READY_POLL_SECONDS
                self._become(states.SERVICE_STATE_READY, "")
            else:
                answered = self._state is states.SERVICE_STATE_READY
                pause = _POLL_SECONDS if clock() - began < _STEADY_SECONDS else _SLOW_POLL_SECONDS
                message = "it does not answer any more" if answered else self._message
                self._become(states.SERVICE_STATE_STARTING, message)
            await asyncio.sleep(pause)

    async def _end(self) -> None:
        child = self._child
        if child is None:
            return
        family = processes.descendants(child.pid)  # kernels have sessions of their own
        self._signal(signal.SIGTERM)
        await asyncio.wait((child.ended,), timeout=_STOP_SECONDS)
        self._signal(signal.SIGKILL)
        await asyncio.to_thread(processes.kill_all, lambda: _alive(family))
        self._child = None

    def _signal(self, number: int) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _become(self, state: states.ServiceState.ValueType, message: str) -> None:
        if (state, message) != (self._state, self._message):
            self._state, self._message = state, message
            self._changed()


def _alive(family: Sequence[processes.Process]) -> list[processes.Process]:
    now = ((process, processes.read_process(process.pid)) for process in family)
    return [p for process, p in now if p is not None and p.started == process.started]


def _close_later(output: Output) -> None:
    """What a helper of it still prints in a moment is kept."""
    asyncio.get_running_loop().call_later(_DRAIN_SECONDS, output.close)

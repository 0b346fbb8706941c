"""Answers the calls of the program's SDK to its agent. docs/contributing/architecture.md lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.checkpoints import Checkpoints
from hai_backend.agent.program.control_file import ControlFile
from hai_backend.agent.program.local_socket import Answer, BadCall, Call, integer, number
from hai_backend.agent.program.suspend import SuspendRequest
from hai_backend.agent.program.watchdog import Watchdog
from hai_backend.agent.server.outgoing import Outgoing

_OK: Answer = {"ok": True}
_YEAR = 366 * 86400.0
_PRIORITY = "priority"
_STATE = "whole_life_state"
_NODE = "node_reported"
_LOST, _LOADED = "checkpoint_lost", "checkpoint_loaded"


class Calls:
    """The calls, with one method for each. If the server decides about a call, its method waits for the decision."""

    def __init__(
        self,
        control: ControlFile,
        outgoing: Outgoing,
        suspending: SuspendRequest,
        watchdog: Watchdog,
        checkpoints: Checkpoints,
        wake: Callable[[], None],
        on_all_saved: Callable[[], None],
    ) -> None:
        self._control = control
        self._outgoing = outgoing
        self._suspending = suspending
        self._watchdog = watchdog
        self._checkpoints = checkpoints
        self._wake = wake
        self._on_all_saved = on_all_saved
        self._state_lock = asyncio.Lock()
        self._priority_lock = asyncio.Lock()
        self._pending_state: tuple[int, asyncio.Future[None]] | None = None
        self._pending_priority: asyncio.Future[str] | None = None

    def table(self) -> Mapping[str, Call]:
        """Return the methods that answer calls, by the names of the calls."""
        return {
            "suspend_received": self._suspend_received,
            "go_suspend": self._go_suspend,
            "set_whole_life_state": self._set_whole_life_state,
            "set_watchdog_time": self._set_watchdog_time,
            "set_priority": self._set_priority,
            "disable_warn": self._disable_warn,
            "checkpoint_saved": self._checkpoint_saved,
            "checkpoint_lost": self._checkpoint_lost,
            "checkpoint_loaded": self._checkpoint_loaded,
            "report_node": self._report_node,
            "saved": self._all_saved,
        }

    def confirm_whole_life_state(self, value: int) -> None:
        """Record that the server has stored a whole-life state, which this or another rank has set."""
        self._control.set_whole_life_state(value)
        pending = self._pending_state
        if pending is not None and pending[0] == value and not pending[1].done():
            pending[1].set_result(None)

    def answer_priority(self, error: str) -> None:
        """Pass the server's answer to the call `set_priority`; an empty `error` means success."""
        if self._pending_priority is not None and not self._pending_priority.done():
            self._pending_priority.set_result(error)

    async def _suspend_received(self, request: Mapping[str, Any]) -> Answer:
        self._suspending.acknowledge()
        self._wake()
        return _OK

    async def _go_suspend(self, request: Mapping[str, Any]) -> Answer:
        self._checkpoints.flush()  # must be sent before the message that ends the run
        self._suspending.yield_run()
        self._wake()
        return _OK

    async def _set_whole_life_state(self, request: Mapping[str, Any]) -> Answer:
        """Send the state to the server, and answer when the server has stored it."""
        value = integer(request, "value")
        async with self._state_lock:
            changed = value != self._control.whole_life_state
            durable = asyncio.get_running_loop().create_future()
            self._pending_state = (value, durable)
            message = pb.WholeLifeStateChanged(value=value)
            self._keep(_STATE, pb.AttachRequest(whole_life_state=message))
            try:
                await durable
            finally:
                self._outgoing.drop(_STATE)
            return {"ok": True, "changed": changed}

    async def _set_priority(self, request: Mapping[str, Any]) -> Answer:
        """Send the request to the server, and answer with its decision."""
        level = integer(request, "priority", -1, 50)
        async with self._priority_lock:
            self._pending_priority = asyncio.get_running_loop().create_future()
            message = pb.PriorityAsked(priority=level)
            self._keep(_PRIORITY, pb.AttachRequest(priority=message))
            try:
                error = await self._pending_priority
            finally:
                self._outgoing.drop(_PRIORITY)
            return {"ok": False, "error": error} if error else _OK

    async def _set_watchdog_time(self, request: Mapping[str, Any]) -> Answer:
        self._watchdog.set_limit(number(request, "seconds", 0, _YEAR))
        return _OK

    async def _disable_warn(self, request: Mapping[str, Any]) -> Answer:
        integer(request, "mask", 0)  # no other effect: the platform does not warn programs yet
        return _OK

    async def _checkpoint_saved(self, request: Mapping[str, Any]) -> Answer:
        seconds = number({"seconds": 0, **request}, "seconds", 0, _YEAR)
        self._checkpoints.saved(seconds, integer({"step": -1, **request}, "step", -1))
        return _OK

    async def _checkpoint_lost(self, request: Mapping[str, Any]) -> Answer:
        node, resumed = (
            request.get("node", ""),
            integer({"resumed_step": -1, **request}, "resumed_step", -1),
        )
        if not isinstance(node, str):
            raise BadCall("node must be a text")
        lost = pb.CheckpointLost(
            step=integer(request, "step", 0),
            node=node.encode(errors="replace").decode(),  # replaces lone surrogates
            resumed_step=resumed if resumed >= 0 else None,
        )
        self._outgoing.put(_LOST, pb.AttachRequest(checkpoint_lost=lost))
        self._wake()
        return _OK

    async def _checkpoint_loaded(self, request: Mapping[str, Any]) -> Answer:
        """Send the longest load that was not sent yet. The server keeps the longest of all."""
        seconds = number(request, "seconds", 0, _YEAR)
        unsent = self._outgoing.unsent(_LOADED)
        if unsent is not None:
            seconds = max(seconds, unsent.checkpoint_loaded.seconds)
        loaded = pb.CheckpointLoaded(seconds=seconds)
        self._outgoing.put(_LOADED, pb.AttachRequest(checkpoint_loaded=loaded))
        self._wake()
        return _OK

    async def _report_node(self, request: Mapping[str, Any]) -> Answer:
        healthy, error = request.get("healthy"), request.get("error", "")
        if not isinstance(healthy, bool) or not isinstance(error, str):
            raise BadCall("healthy must be true or false, error a text")
        if not healthy:
            text = error.encode(errors="replace").decode()  # replaces lone surrogates
            message = pb.NodeReported(healthy=False, error=text)
            self._keep(_NODE, pb.AttachRequest(node_reported=message))
        return _OK

    async def _all_saved(self, request: Mapping[str, Any]) -> Answer:
        self._on_all_saved()
        return _OK

    def _keep(self, kind: str, message: pb.AttachRequest) -> None:
        self._outgoing.keep(kind, message)
        self._wake()

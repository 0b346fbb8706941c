"""Passes suspend requests to the program with the control file or a signal, or to the users of a dev container."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from hai.task import control_file as layout
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.control_file import ControlFile
from hai_backend.agent.rank_dir import write_agent_log
from hai_backend.agent.server.outgoing import Outgoing

_SETTLE_SECONDS = 0.002  # then a step that began while the flag was set is visible
MARGIN_SECONDS = 2.0  # a container yields so long before the end of the time to save
_WANTED_SECONDS = 3.0  # the time to save in a container whose owner has requested the stop


class SuspendRequest:
    """The suspend request for this run, if there is one, and the answers of the program."""

    def __init__(self, control: ControlFile, outgoing: Outgoing) -> None:
        self._control = control
        self._outgoing = outgoing
        self.requested = False
        self.yielded = False

    async def request_suspend(self) -> None:
        """Set the suspend flag, and report the last step that the program may have entered before it read the flag.

        The report is sent again on each new stream, so that a restarted server gets the same steps. A second call has
        no effect.
        """
        if self.requested:
            return
        self.requested = True
        self._control.request_suspend()
        await asyncio.sleep(_SETTLE_SECONDS)
        step = pb.StepReported(step=self._control.read_last_step())
        self._outgoing.keep("step", pb.AttachRequest(step_reported=step))

    def set_stop_step(self, step: int) -> None:
        """Let the program stop before `step`, at which all ranks stop. Only the first call has an effect."""
        if self._control.flag != layout.AGREED:
            self._control.set_stop_step(step)

    def acknowledge(self) -> None:
        """Report that the program has read the flag.

        The report is sent on each new stream. A server that does not have it would end the program early.
        """
        acknowledged = pb.AttachRequest(suspend_acknowledged=pb.SuspendAcknowledged())
        self._outgoing.keep("acknowledged", acknowledged)

    def yield_run(self) -> None:
        """Report that the program has saved and yields the nodes."""
        self.yielded = True
        self._outgoing.keep("yielded", pb.AttachRequest(yielded=pb.Yielded()))


def send_suspend_signal(group: int, name: str) -> None:
    """Send a signal to the program's process group, for programs that do not use the SDK.

    The signal is sent to the group, so that it reaches a program that a shell script has started. If the signal
    terminates the script, the program may continue to save until the platform ends the rank (see Program). Processes
    that have inherited a signal handler by fork (DataLoader workers) get the signal, too.
    """
    number = getattr(signal, name, None)
    if isinstance(number, signal.Signals):
        with suppress(ProcessLookupError):
            os.killpg(group, number)


class Notice:
    """A file that informs the users of a dev container when it will stop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved = asyncio.Event()

    def saved(self) -> None:
        """Record that all notebooks are saved."""
        self._saved.set()

    async def show(self, request: pb.SuspendRequested) -> None:
        """Write the notice, and return when the rank may stop.

        If the owner has requested the stop, return as soon as all notebooks are saved, but after `_WANTED_SECONDS` at
        the latest. Otherwise, return at the announced time.
        """
        seconds = max(0.0, request.save_within_seconds - MARGIN_SECONDS)
        if request.wanted:
            seconds = min(seconds, _WANTED_SECONDS)
        try:
            self._write(request, seconds)
        except OSError as error:  # the disk is full; users get the time to save nevertheless
            write_agent_log(f"the notice cannot be written: {error}")
        if not request.wanted:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._saved.wait(), seconds)

    def _write(self, request: pb.SuspendRequested, seconds: float) -> None:
        """Write the file atomically."""
        now = time.time()
        facts = {
            "kind": "stop" if request.wanted else "reclaim",
            "reason": request.reason,
            "given_at": now,
            "ends_at": now + seconds,
        }
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(facts))
        os.replace(part, self.path)

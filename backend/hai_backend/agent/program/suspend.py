"""Passes a suspend request to the program: by the control file, by a signal, or by a notice in a dev container."""

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
from hai_backend.agent.output import agent_log
from hai_backend.agent.program.control_file import Control
from hai_backend.agent.server.outgoing import Outgoing

_SETTLE_SECONDS = 0.002  # a step that was entered while the flag went up is visible after that
MARGIN_SECONDS = 2.0  # of the time to save: the yield must be there before it is over
_SAVED_SECONDS = 3.0  # for a leave that its owner asked for, if nobody says that all is saved


class SuspendRequest:
    """What was asked and what the program answered. Asked twice is asked once."""

    def __init__(self, control: Control, outgoing: Outgoing) -> None:
        self._control = control
        self._outgoing = outgoing
        self.requested = False
        self.yielded = False

    async def request_suspend(self) -> None:
        """Raise the flag, and report the step that the program may have entered without seeing it.

        The report is kept: a server that was started again collects the same numbers, so that it finds the same step.
        """
        if self.requested:
            return
        self.requested = True
        self._control.request_suspend()
        await asyncio.sleep(_SETTLE_SECONDS)
        step = pb.StepReported(step=self._control.largest_step())
        self._outgoing.keep("step", pb.AttachRequest(step_reported=step))

    def agree(self, step: int) -> None:
        """All ranks stop before `step`; the first word counts."""
        if self._control.flag != layout.AGREED:
            self._control.agree(step)

    def acknowledge(self) -> None:
        """The program has seen the flag. Kept: a server that forgot it would cut the time to save."""
        done = pb.AttachRequest(suspend_acknowledged=pb.SuspendAcknowledged())
        self._outgoing.keep("acknowledged", done)

    def give_way(self) -> None:
        """The program has saved."""
        self.yielded = True
        self._outgoing.keep("yielded", pb.AttachRequest(yielded=pb.Yielded()))


def send_suspend_signal(group: int, name: str) -> None:
    """The signal for programs that do not use the SDK, to the program's process group.

    To the group, so that it reaches a program that a shell script started. A script that dies of it takes nothing
    along: what it started may go on saving until the platform ends the rank (see Program). Processes that inherited a
    handler by fork (DataLoader workers) get the signal too.
    """
    number = getattr(signal, name, None)
    if isinstance(number, signal.Signals):
        with suppress(ProcessLookupError):
            os.killpg(group, number)


class Notice:
    """One per agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved = asyncio.Event()

    def saved(self) -> None:
        """All notebooks are saved."""
        self._saved.set()

    async def give(self, request: pb.SuspendRequested) -> None:
        """Give it, and return when the rank may leave: not before the time that was promised, unless it was wanted."""
        seconds = max(0.0, request.save_within_seconds - MARGIN_SECONDS)
        if request.wanted:
            seconds = min(seconds, _SAVED_SECONDS)
        try:
            self._write(request, seconds)
        except OSError as error:  # a full disk: the time to save is theirs all the same
            agent_log.note(f"the notice cannot be written: {error}")
        if not request.wanted:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._saved.wait(), seconds)

    def _write(self, request: pb.SuspendRequested, seconds: float) -> None:
        """Whole or not at all, for whoever reads it at once."""
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

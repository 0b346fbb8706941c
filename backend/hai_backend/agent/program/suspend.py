"""The suspend request as the agent carries it to its program, and the agreement on the step to stop before."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from hai.task import control as layout
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.control_file import Control
from hai_backend.agent.server.outgoing import Outgoing

_SETTLE_SECONDS = 0.002  # a step that was entered while the flag went up is visible after that


class SuspendRequest:
    """What was asked and what the program answered. Asked twice is asked once."""

    def __init__(self, control: Control, outgoing: Outgoing) -> None:
        self._control = control
        self._outgoing = outgoing
        self.asked = False
        self.yielded = False

    async def ask(self) -> None:
        """Raise the flag, and report the step that the program may have entered without seeing it.

        The report is kept: a server that was started again collects the same numbers, so that it finds the same step.
        """
        if self.asked:
            return
        self.asked = True
        self._control.ask()
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


def tell_program(group: int, name: str) -> None:
    """The signal for programs that do not use the SDK, to the program's process group.

    To the group, so that it reaches a program that a shell script started. A script that dies of it takes nothing
    along: what it started may go on saving until the platform ends the rank (see Program). Processes that inherited a
    handler by fork (DataLoader workers) get the signal too.
    """
    number = getattr(signal, name, None)
    if isinstance(number, signal.Signals):
        with suppress(ProcessLookupError):
            os.killpg(group, number)

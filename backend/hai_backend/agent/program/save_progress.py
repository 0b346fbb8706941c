"""Reports how much the program has saved, from a suspend request until the program yields or ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.control_file import ControlFile
from hai_backend.agent.server.outgoing import Outgoing

_KIND = "save_progress"
_FIRST_SECONDS = 0.5  # most programs have saved before the first look
_PACE_SECONDS = 1.0


async def report_save_progress(
    control: ControlFile,
    outgoing: Outgoing,
    wake: Callable[[], None],
    saving: Callable[[], bool],
) -> None:
    """Report each change about once a second, while `saving()` is true.

    The last report is sent again on each new stream, because a restarted server may not have it.
    """
    last, wait = (0, 0), _FIRST_SECONDS
    while True:
        await asyncio.sleep(wait)
        if not saving():
            return
        wait, progress = _PACE_SECONDS, control.read_save_progress()
        if progress != last:
            last = progress
            saved, total = progress
            report = pb.SaveProgress(saved_bytes=saved, total_bytes=total)
            outgoing.keep(_KIND, pb.AttachRequest(save_progress=report))
            wake()

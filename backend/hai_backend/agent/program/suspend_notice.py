"""The notice that a dev container has to leave: nobody in it speaks the suspend protocol, so the agent does.

`hai_jupyter` watches the file that HAI_NOTICE_FILE names, shows it, saves notebooks, and says so with the call `saved`.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.output import agent_log

MARGIN_SECONDS = 2.0  # of the time to save: the yield must be there before it is over
_SAVED_SECONDS = 3.0  # for a leave that its owner asked for, if nobody says that all is saved


class Notice:
    """One per agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved = asyncio.Event()

    def saved(self) -> None:
        """All notebooks are saved."""
        self._saved.set()

    async def given(self, asked: pb.SuspendRequested) -> None:
        """Give it, and return when the rank may leave: not before the time that was promised, unless it was wanted."""
        seconds = max(0.0, asked.save_within_seconds - MARGIN_SECONDS)
        if asked.wanted:
            seconds = min(seconds, _SAVED_SECONDS)
        try:
            self._write(asked, seconds)
        except OSError as error:  # a full disk: the time to save is theirs all the same
            agent_log.note(f"the notice cannot be written: {error}")
        if not asked.wanted:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._saved.wait(), seconds)

    def _write(self, asked: pb.SuspendRequested, seconds: float) -> None:
        """Whole or not at all, for whoever reads it at once."""
        now = time.time()
        facts = {
            "kind": "stop" if asked.wanted else "reclaim",
            "reason": asked.reason,
            "given_at": now,
            "ends_at": now + seconds,
        }
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(facts))
        os.replace(part, self.path)

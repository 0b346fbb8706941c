"""Starts an agent: its own process settings, signals, and the one loop in which everything happens."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from hai_backend.agent.life import Life
from hai_backend.agent.rank_dir import RankDir
from hai_backend.launch import processes

_PR_SET_CHILD_SUBREAPER = 36
_STOP_GRACE_SECONDS = 2.0


def main(argv: Sequence[str]) -> int:
    """Exit codes: 0 the server knows how it ended, has given the rank up, or another has it; 1 a bug, 2 wrong call."""
    if len(argv) != 2:
        print("usage: python -m hai_backend.agent RANK_DIR", file=sys.stderr)
        return 2
    directory = RankDir(Path(argv[1]).resolve())
    if not directory.claim():
        return 0  # a server that was paused while it led has started a second one
    try:
        asyncio.run(_run(directory))
    except Exception:
        import traceback

        directory.end_everything()
        traceback.print_exc()  # last: it fails on a full disk
        return 1
    return 0


async def _run(directory: RankDir) -> None:
    # Orphans of the program become our children, so that none can hide from us by forking twice.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    processes.remember(directory.agent_pid, os.getpid())
    life = Life(directory)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, life.leave, _STOP_GRACE_SECONDS)
    await life.run()

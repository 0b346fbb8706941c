"""Reaps child processes that are watched by their pidfds and survive the server."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress


def reap(pidfd: int) -> int:
    """Reap a process that has ended, and close its pidfd. Return its exit code, 0 if it is not a child of this one."""
    status = 0
    with suppress(ChildProcessError):  # an earlier server started it
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        status = ended.si_status if ended is not None else 0
    os.close(pidfd)
    return status


def reap_later(pidfd: int) -> None:
    """Reap a process when it ends, because this process may continue without watching it."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(pidfd)
        reap(pidfd)

    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        os.close(pidfd)
    else:
        loop.add_reader(pidfd, ended)

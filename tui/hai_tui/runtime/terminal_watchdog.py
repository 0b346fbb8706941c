"""Ends the app when its terminal has closed.

Only the leader of a terminal session receives SIGHUP; an app under nohup or in the pseudo terminal of a program does
not. Textual would then read the end of input in a busy loop, and wait for ever to paint.
"""

from __future__ import annotations

import os
import select
import signal
from threading import Thread

_CODE = 128 + signal.SIGHUP


def end_with(terminal: int) -> None:
    """End the process, as by SIGHUP, once the other side of this file descriptor is gone."""
    Thread(target=_wait, args=(terminal,), name="hangup", daemon=True).start()


def _wait(terminal: int) -> None:
    gone = select.poll()
    # A hang-up is told without being asked for; what is typed is not ours
    gone.register(terminal, 0)
    gone.poll()
    os._exit(_CODE)

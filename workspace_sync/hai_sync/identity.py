"""Who we are, for the server and for people on the other side."""

from __future__ import annotations

import os
import socket


def author(purpose: str) -> str:
    """This process, for people."""
    return f"{socket.gethostname()} pid {os.getpid()} {purpose}"


def client_id(memory: str) -> str:
    """Whoever holds the lock of a workspace on this machine; `memory`: the name of the index that lies beside it."""
    return f"{socket.gethostname()[:64]}:{memory}"

"""Asking a running daemon: one line of JSON there, one back, over a unix socket in the workspace.

Loads nothing but the standard library: `push` asks before anything else is imported. Socket paths are
limited to about a hundred bytes, so the directory is opened and the socket reached through it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "daemon.sock"


def ask(own: str | Path, request: Mapping[str, Any], timeout: float = 3600.0) -> Any | None:
    """The daemon's answer; None: there is no daemon."""
    if not os.path.exists(os.path.join(own, NAME)):
        return None
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        try:
            with short_path(own) as path:
                client.connect(path)
            client.sendall(json.dumps(request).encode() + b"\n")
            answer = client.makefile("rb").readline()
        except (ConnectionError, FileNotFoundError):
            return None
    return json.loads(answer) if answer else None


@contextmanager
def short_path(own: str | Path) -> Iterator[str]:
    """A way to the socket that is short enough."""
    path = os.path.join(own, NAME)
    if len(os.fsencode(path)) < 100 or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    folder = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{NAME}"
    finally:
        os.close(folder)

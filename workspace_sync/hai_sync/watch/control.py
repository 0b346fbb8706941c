"""Asking a running daemon: one line of JSON there, one back, over a unix socket in the workspace.

Loads nothing but the standard library: `push` asks before anything else is imported. Socket paths are
limited to about a hundred bytes, so the directory is opened and the socket reached through it.
"""

from __future__ import annotations

import json
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME = "daemon.sock"
_VARIABLES = (
    *("HAI_SERVER", "MARSV2_SERVER", "HAI_PROFILE", "HAI_CONFIG", "XDG_CONFIG_HOME", "HOME"),
    *("grpc_proxy", "https_proxy", "http_proxy"),
)
"""With the file of profiles they decide which server a command that names no profile connects to."""

_LONGEST = 100
_SILENT = "the daemon of this workspace does not answer; end its process (a `watch start`), and start it again"


def ask(own: str | os.PathLike[str], request: Mapping[str, Any], timeout: float = 3600.0) -> Any:
    """The daemon's answer; None: there is no daemon. Raises TimeoutError."""
    if not os.path.exists(os.path.join(own, NAME)):
        return None
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        try:
            with ShortPath(own) as path:
                client.connect(path)
            client.sendall(json.dumps(request).encode() + b"\n")
            answer = client.makefile("rb").readline()
        except (ConnectionError, FileNotFoundError):
            return None
        except TimeoutError:
            raise TimeoutError(_SILENT) from None
    return json.loads(answer) if answer else None


class ShortPath:
    """A way to the socket that is short enough, while it is entered."""

    def __init__(self, own: str | os.PathLike[str]) -> None:
        self._own = own
        self._folder = -1

    def __enter__(self) -> str:
        path = os.path.join(self._own, NAME)
        if len(os.fsencode(path)) < _LONGEST or not os.path.isdir("/proc/self/fd"):
            return path
        self._folder = os.open(self._own, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{NAME}"

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)


def server_choice(config: str) -> str:
    """Equal values lead to the same server; `config` is the file of profiles."""
    chosen: list[str | int | None] = [os.environ.get(name) for name in _VARIABLES]
    try:
        status = os.stat(config)
    except OSError:
        return repr(chosen)
    return repr([*chosen, status.st_size, status.st_mtime_ns, status.st_ino])

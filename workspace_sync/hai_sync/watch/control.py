"""Sends requests to a running daemon: one line of JSON each way, over a unix socket in the workspace.

This module imports only the standard library, because `push` queries the daemon before anything else is imported.
Socket paths are limited to about a hundred bytes, so a long one is reached through the open directory.
"""

from __future__ import annotations

import json
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SOCKET_NAME = "daemon.sock"
_VARIABLES = (
    *("HAI_SERVER", "MARSV2_SERVER", "HAI_PROFILE", "HAI_CONFIG", "XDG_CONFIG_HOME", "HOME"),
    *("grpc_proxy", "https_proxy", "http_proxy"),
)
"""With the file of profiles, these variables decide the server of a command that names no profile."""

_MAX_SOCKET_PATH = 100
_NO_REPLY = "the daemon of this workspace does not answer; end its process (a `watch start`), and start it again"


def query_daemon(
    private_dir: str | os.PathLike[str], request: Mapping[str, Any], timeout: float = 3600.0
) -> Any:
    """Return the reply of the daemon, or None if no daemon runs. Raises TimeoutError."""
    if not os.path.exists(os.path.join(private_dir, SOCKET_NAME)):
        return None
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        try:
            with ShortSocketPath(private_dir) as path:
                client.connect(path)
            client.sendall(json.dumps(request).encode() + b"\n")
            reply = client.makefile("rb").readline()
        except (ConnectionError, FileNotFoundError):
            return None
        except TimeoutError:
            raise TimeoutError(_NO_REPLY) from None
    return json.loads(reply) if reply else None


class ShortSocketPath:
    """Context manager for a path to the socket that is short enough."""

    def __init__(self, private_dir: str | os.PathLike[str]) -> None:
        self._private_dir = private_dir
        self._folder = -1

    def __enter__(self) -> str:
        path = os.path.join(self._private_dir, SOCKET_NAME)
        if len(os.fsencode(path)) < _MAX_SOCKET_PATH or not os.path.isdir("/proc/self/fd"):
            return path
        self._folder = os.open(self._private_dir, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{SOCKET_NAME}"

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)


def server_choice(config: str) -> str:
    """Return a text that is equal for commands that connect to the same server. `config` is the file of profiles."""
    chosen: list[str | int | None] = [os.environ.get(name) for name in _VARIABLES]
    try:
        status = os.stat(config)
    except OSError:
        return repr(chosen)
    return repr([*chosen, status.st_size, status.st_mtime_ns, status.st_ino])

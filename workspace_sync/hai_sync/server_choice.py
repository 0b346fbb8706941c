"""What decides which server a command speaks to, when it names no profile: variables, and the file of profiles."""

from __future__ import annotations

import os

_VARIABLES = (
    *("HAI_SERVER", "MARSV2_SERVER", "HAI_PROFILE", "HAI_CONFIG", "XDG_CONFIG_HOME", "HOME"),
    *("grpc_proxy", "https_proxy", "http_proxy"),
)


def server_choice(config: str) -> str:
    """Equal values lead to the same server; `config` is the file of profiles."""
    chosen: list[str | int | None] = [os.environ.get(name) for name in _VARIABLES]
    try:
        status = os.stat(config)
    except OSError:
        return repr(chosen)
    return repr([*chosen, status.st_size, status.st_mtime_ns, status.st_ino])

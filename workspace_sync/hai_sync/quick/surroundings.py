"""What the choice of a server depends on, for a command that names none."""

from __future__ import annotations

import os

_CHOICE = ("HAI_SERVER", "MARSV2_SERVER", "HAI_PROFILE", "HAI_CONFIG", "XDG_CONFIG_HOME", "HOME")
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def proxied() -> bool:
    """Whether grpc would go another way."""
    return any(os.environ.get(name) for name in _PROXIES)


def surroundings(config: str) -> str:
    """Two that are equal lead to one server; `config` is the file of profiles."""
    chosen: list[str | int | None] = [os.environ.get(name) for name in (*_CHOICE, *_PROXIES)]
    try:
        status = os.stat(config)
    except OSError:
        return repr(chosen)
    return repr([*chosen, status.st_size, status.st_mtime_ns, status.st_ino])

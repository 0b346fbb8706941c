"""Loads gRPC without its fork handlers. JupyterLab forks for each terminal, and one in twenty stayed empty: the child
died in the handlers of gRPC before it became a shell (grpc/grpc#41455; they are partly on by default)."""

from __future__ import annotations

import os

_SETTING = "GRPC_ENABLE_FORK_SUPPORT"


def load_grpc() -> None:
    """Must run before any other import of grpc, which reads the setting; child processes do not inherit it."""
    chosen = os.environ.get(_SETTING)
    os.environ.setdefault(_SETTING, "false")
    import grpc  # noqa: F401

    if chosen is None:
        del os.environ[_SETTING]

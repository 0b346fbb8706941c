"""gRPC without what it does at each fork. JupyterLab forks for a terminal, and of one in twenty nothing was seen: the
child died in gRPC's handlers before it was a shell (grpc/grpc#41455; half of them are on unless somebody says no)."""

from __future__ import annotations

import os

_SETTING = "GRPC_ENABLE_FORK_SUPPORT"


def load_grpc() -> None:
    """Before anybody else imports it: it reads the setting then, and what Jupyter starts need not inherit it."""
    chosen = os.environ.get(_SETTING)
    os.environ.setdefault(_SETTING, "false")
    import grpc  # noqa: F401

    if chosen is None:
        del os.environ[_SETTING]

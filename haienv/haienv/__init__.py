"""Manages Python environments for tasks, which consist of shared layers with locks.

Programs and notebooks use `set_env` and `get_envs`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` takes time
    from typing import Any

__all__ = ["get_envs", "set_env"]


def __getattr__(name: str) -> Any:
    """Import lazily: activating an environment in a shell must be fast."""
    if name in __all__:
        from haienv import api

        return getattr(api, name)
    raise AttributeError(name)

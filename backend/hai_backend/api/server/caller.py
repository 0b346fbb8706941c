"""The caller of the current call: set by the gate, read by services. Each call is a task with a value of its own."""

from __future__ import annotations

from contextvars import ContextVar

from hai_backend.auth.permissions import Identity

_CALLER: ContextVar[Identity] = ContextVar("hai_caller")


def enter(identity: Identity) -> None:
    """From here on, this call is made by `identity`."""
    _CALLER.set(identity)


def current() -> Identity:
    """Who calls. Only for calls that need a token."""
    return _CALLER.get()

"""What a service knows of the call that it answers: the gRPC context and the caller.

Each call runs as its own asyncio task, so each call has its own value of the context variable.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, TypeAlias

import grpc
from grpc import aio

from hai_backend.auth.permissions import Identity

Context = aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_CALLER: ContextVar[Identity] = ContextVar("hai_caller")


def set_caller(identity: Identity) -> None:
    """Set the caller of the current call. CallGuard does so before it runs the service."""
    _CALLER.set(identity)


def current_caller() -> Identity:
    """Return the caller of the current call, which must be one that needs a user token."""
    return _CALLER.get()

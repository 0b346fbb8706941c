"""What a call ended with, also when it was still being written to.

A server may end a call at once, and then what the client still writes fails. grpc.aio puts an INTERNAL of its own in
the place of the server's word when it hears of that (grpc/grpc#36066); the word came before it, or comes right behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from grpc import StatusCode, aio

Found = TypeVar("Found")

_CORE = "Internal error from Core"
_PATIENCE_SECONDS = 1.0  # both come of one event


def is_broken(error: aio.AioRpcError) -> bool:
    """Whether this is gRPC's own word for a write that failed."""
    return error.code() is StatusCode.INTERNAL and error.details() == _CORE


class Ending:
    """Listens to a call from its begin."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._first: asyncio.Future[aio.AioRpcError] = asyncio.get_running_loop().create_future()
        call.add_done_callback(self._look)

    async def status(self) -> aio.AioRpcError:
        """The server's word, also an OK, once there is any; else what gRPC says of a broken connection."""
        error = await _status(self._call)
        if not is_broken(error):
            return error
        await asyncio.wait([self._first], timeout=_PATIENCE_SECONDS)
        return self._first.result() if self._first.done() else error

    def _look(self, call: Any) -> None:
        """gRPC calls this each time that it sets a status, and never waits for one that is set."""
        error = _at_once(_status(call))
        if not self._first.done() and not is_broken(error):
            self._first.set_result(error)


async def _status(call: Any) -> aio.AioRpcError:
    return aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details(),
        await call.debug_error_string(),
    )


def _at_once(ready: Coroutine[Any, Any, Found]) -> Found:
    try:
        ready.send(None)
    except StopIteration as end:
        found: Found = end.value
        return found
    raise AssertionError("nothing to wait for")

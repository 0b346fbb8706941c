"""A streaming call whose end is always an AioRpcError, whichever side ended it.

grpc.aio reports the end of a call in four ways. It raises AioRpcError for the status of the server, CancelledError when
this side cancelled the call or closed its channel, InvalidStateError when a write comes after the end, and an
INTERNAL of its own when a write failed (grpc/grpc#36066). A CancelledError passes every `except` for errors and ends
the asyncio task around the call without a trace, although that task was not cancelled. `StreamCall` raises
CancelledError only when the asyncio task itself is being cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from grpc import StatusCode, aio

from hai.client.connection.cancellation import is_being_cancelled

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

_CORE = "Internal error from Core"
_PATIENCE_SECONDS = 1.0  # gRPC reports a failed write and the server's status from one event
_CANCELLED_BY_GRPC = "Locally cancelled by application!"
_CANCELLED_HERE = "cancelled on this side: its channel was closed, or its reader or writer was"


def is_broken(error: aio.AioRpcError) -> bool:
    """Whether this is gRPC's own status for a write that failed."""
    return error.code() is StatusCode.INTERNAL and error.details() == _CORE


class StreamCall(Generic[Request, Answer]):
    """A call with a stream of answers, with or without a stream of requests. Create it right after the call.

    As in gRPC, a read or a write that is cancelled, also by a timeout around it, ends the call.
    """

    def __init__(
        self, call: aio.StreamStreamCall[Request, Answer] | aio.UnaryStreamCall[Request, Answer]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._call: Any = call
        self._answers: AsyncIterator[Answer] | None = None
        self._reason: str | None = None
        self._connected = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._first: asyncio.Future[aio.AioRpcError] = loop.create_future()
        call.add_done_callback(self._note_status)

    def __aiter__(self) -> AsyncIterator[Answer]:
        return self

    async def __anext__(self) -> Answer:
        """The next answer. Raises the AioRpcError of every end but OK, also a second time."""
        if self._answers is None:
            self._answers = aiter(self._call)
        try:
            return await anext(self._answers)
        except StopAsyncIteration:
            self._call.cancel()  # it has ended, or an earlier read was cancelled, after which gRPC cannot read
        except (aio.AioRpcError, aio.InternalError):
            pass
        except asyncio.CancelledError:
            self._call.cancel()  # gRPC does it too, except before the call has begun
            if is_being_cancelled():
                raise
        error = await self.status()
        if error.code() is StatusCode.OK:  # a write may have failed after the end
            raise StopAsyncIteration
        raise error

    async def read(self) -> Answer | None:
        """As `anext`, but None after the last answer of a call that ended with OK."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            return None

    async def write(self, request: Request) -> None:
        """Send a request. Raises the AioRpcError of the call's end, also of OK, once it has ended."""
        try:
            await self._connect()
            await self._call.write(request)
            return
        except (aio.AioRpcError, aio.InternalError):
            pass
        except asyncio.InvalidStateError:
            if not self.done:  # it writes after `done_writing`
                raise
        except asyncio.CancelledError:
            self._call.cancel()  # gRPC does it too, except before the call has begun
            if is_being_cancelled():
                raise
        raise await self.status()

    async def done_writing(self) -> None:
        """Announce that no request follows. No error if the call has ended: reading raises its status."""
        try:
            await self._connect()
            with suppress(aio.AioRpcError, aio.InternalError):
                await self._call.done_writing()
        except asyncio.CancelledError:
            self._call.cancel()  # gRPC does it too, except before the call has begun
            if is_being_cancelled():
                raise

    async def initial_metadata(self) -> aio.Metadata:
        """Metadata from before the first answer; empty if the call ended before."""
        return cast(aio.Metadata, await self._call.initial_metadata())

    async def status(self) -> aio.AioRpcError:
        """Wait for the end and return its status, OK included: that of the server where it sent one."""
        error = await _status(self._call)
        if is_broken(error):
            await asyncio.wait([self._first], timeout=_PATIENCE_SECONDS)
        return self._first.result() if self._first.done() else error

    def cancel(self, reason: str = "") -> None:
        """End the call. Its reader and writer get CANCELLED with this reason. No effect if it has ended."""
        if not self.done:
            self._reason = reason or "cancelled by its user"
            self._call.cancel()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return bool(self._call.done())

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` has ended the call."""
        return self._reason is not None

    async def _connect(self) -> None:
        """Wait until requests can be sent, or the call ends.

        gRPC would wait for ever to send on a call that was cancelled before it had a connection.
        """
        if self._connected:
            return
        connecting = asyncio.ensure_future(self._call.wait_for_connection())
        try:
            await asyncio.wait([connecting, self._ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not connecting.cancel() and not connecting.cancelled():
                connecting.exception()  # the same as the status of the call
        self._connected = True

    def _note_status(self, call: Any) -> None:
        """gRPC calls this each time that it sets a status, and never waits for one that is set."""
        error = _run_without_waiting(_status(call))
        if not self._first.done() and not is_broken(error):
            self._first.set_result(self._with_reason(error))
        if not self._ended.done():
            self._ended.set_result(None)

    def _with_reason(self, error: aio.AioRpcError) -> aio.AioRpcError:
        if error.code() is not StatusCode.CANCELLED or error.details() != _CANCELLED_BY_GRPC:
            return error
        details = _CANCELLED_HERE if self._reason is None else self._reason
        return aio.AioRpcError(
            StatusCode.CANCELLED, error.initial_metadata(), error.trailing_metadata(), details
        )


async def _status(call: Any) -> aio.AioRpcError:
    return aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details(),
        await call.debug_error_string(),
    )


def _run_without_waiting(ready: Coroutine[Any, Any, Result]) -> Result:
    try:
        ready.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("the status of a call that has ended is available immediately")

"""A streaming call that always ends with an AioRpcError, whichever side ended it.

grpc.aio reports the end of a call in four ways. It raises AioRpcError for the status of the server, CancelledError if
this side cancelled the call or closed its channel, InvalidStateError if a write comes after the end, and a status
INTERNAL of its own if a write failed (grpc/grpc#36066). A CancelledError passes every `except Exception` and ends the
surrounding asyncio task without a trace, although that task was not cancelled. `StreamCall` raises CancelledError
only when the asyncio task itself is being cancelled.
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

_WRITE_FAILED = "Internal error from Core"
_STATUS_SECONDS = 1.0  # time for the server's status to arrive after a failed write: gRPC reports both from one event
_CANCELLED_BY_GRPC = "Locally cancelled by application!"
_CANCELLED_HERE = "cancelled on this side: its channel was closed, or its reader or writer was"


def is_write_failure(error: aio.AioRpcError) -> bool:
    """Return whether this is gRPC's own status for a write that failed."""
    return error.code() is StatusCode.INTERNAL and error.details() == _WRITE_FAILED


class StreamCall(Generic[Request, Answer]):
    """A call with a stream of answers, with or without a stream of requests. Create it immediately after the call.

    As in gRPC, a cancelled read or write ends the call, also if a timeout cancelled it.
    """

    def __init__(
        self, call: aio.StreamStreamCall[Request, Answer] | aio.UnaryStreamCall[Request, Answer]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._call: Any = call
        self._answers: AsyncIterator[Answer] | None = None
        self._cancel_reason: str | None = None
        self._can_send = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._server_status: asyncio.Future[aio.AioRpcError] = loop.create_future()
        call.add_done_callback(self._record_status)

    def __aiter__(self) -> AsyncIterator[Answer]:
        return self

    async def __anext__(self) -> Answer:
        """Return the next answer. Raises the AioRpcError of the call's end, except for OK, each time."""
        if self._answers is None:
            self._answers = aiter(self._call)
        try:
            return await anext(self._answers)
        except StopAsyncIteration:
            self._call.cancel()  # it has ended, or gRPC cannot read after a cancelled read
        except (aio.AioRpcError, aio.InternalError):
            pass
        except asyncio.CancelledError:
            self._call.cancel()  # gRPC cancels it too, but not before the call has begun
            if is_being_cancelled():
                raise
        error = await self.status()
        if error.code() is StatusCode.OK:  # reached, for example, when a write failed after the end
            raise StopAsyncIteration
        raise error

    async def read(self) -> Answer | None:
        """Return the next answer, or None after the last answer of a call that ended with OK."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            return None

    async def write(self, request: Request) -> None:
        """Send a request. After the end of the call this raises its AioRpcError, also for OK."""
        try:
            await self._connect()
            await self._call.write(request)
            return
        except (aio.AioRpcError, aio.InternalError):
            pass
        except asyncio.InvalidStateError:
            if not self.done:  # the caller writes after `done_writing`
                raise
        except asyncio.CancelledError:
            self._call.cancel()  # gRPC cancels it too, but not before the call has begun
            if is_being_cancelled():
                raise
        raise await self.status()

    async def done_writing(self) -> None:
        """Announce that no request follows. This is no error if the call has ended; reading raises the status."""
        try:
            await self._connect()
            with suppress(aio.AioRpcError, aio.InternalError):
                await self._call.done_writing()
        except asyncio.CancelledError:
            self._call.cancel()  # gRPC cancels it too, but not before the call has begun
            if is_being_cancelled():
                raise

    async def initial_metadata(self) -> aio.Metadata:
        """Return the metadata from before the first answer. They are empty if the call ended earlier."""
        return cast(aio.Metadata, await self._call.initial_metadata())

    async def status(self) -> aio.AioRpcError:
        """Wait for the end and return its status, OK included. The server's status takes precedence over gRPC's."""
        error = await _status(self._call)
        if is_write_failure(error):
            await asyncio.wait([self._server_status], timeout=_STATUS_SECONDS)
        return self._server_status.result() if self._server_status.done() else error

    def cancel(self, reason: str = "") -> None:
        """End the call. Its reader and writer receive CANCELLED with this reason. Ending it twice has no effect."""
        if not self.done:
            self._cancel_reason = reason or "cancelled by its user"
            self._call.cancel()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return bool(self._call.done())

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` has ended the call."""
        return self._cancel_reason is not None

    async def _connect(self) -> None:
        """Wait until requests can be sent, or the call ends.

        gRPC would wait forever to send on a call that was cancelled before it had a connection.
        """
        if self._can_send:
            return
        connecting = asyncio.ensure_future(self._call.wait_for_connection())
        try:
            await asyncio.wait([connecting, self._ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not connecting.cancel() and not connecting.cancelled():
                connecting.exception()  # mark the error as retrieved; the status of the call is the same
        self._can_send = True

    def _record_status(self, call: Any) -> None:
        """Record the first status that is not gRPC's own. gRPC calls this each time that it sets a status."""
        error = _run_without_waiting(_status(call))
        if not self._server_status.done() and not is_write_failure(error):
            self._server_status.set_result(self._with_reason(error))
        if not self._ended.done():
            self._ended.set_result(None)

    def _with_reason(self, error: aio.AioRpcError) -> aio.AioRpcError:
        if error.code() is not StatusCode.CANCELLED or error.details() != _CANCELLED_BY_GRPC:
            return error
        details = _CANCELLED_HERE if self._cancel_reason is None else self._cancel_reason
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

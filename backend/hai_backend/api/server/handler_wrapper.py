"""Wraps RPC handlers of every kind in an async context manager.

The handler of a streaming call is an async generator, or a coroutine that writes by itself as the health service of
grpc does. The wrapper must be of the same kind as the handler, because grpc checks the kind.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from hai_backend.api.server.call_context import Context, Handler
from hai_backend.domain.errors import HaiError, Invalid, Violation

Response = TypeVar("Response")
_END = object()
CheckAdmitted = Callable[[], None]  # raises when the caller may no longer make the call
StreamScope = Callable[[Any, Context], AbstractAsyncContextManager[CheckAdmitted]]
UnaryMethod = Callable[[Any, Context], Coroutine[Any, Any, Any]]
Decode = Callable[[bytes], Any]


class Undecodable:
    """Takes the place of a request that cannot be decoded."""


def undecodable_error() -> Invalid:
    """Return the error for a request that cannot be decoded."""
    message = "cannot be read: it is not the message that this call takes; are client and server of one version?"
    return Invalid((Violation("request", message),), reason="UNREADABLE")


class StreamCloser:
    """Ends open streams with an error. Each stream waits for its next response in `wait_for_response`.

    grpc sends no status for a cancelled handler, so the cancellation becomes the error here.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[Any], CheckAdmitted] = {}
        self._errors: dict[asyncio.Task[Any], Exception] = {}
        self._closed_by: Exception | None = None

    def close(self, error: Exception) -> None:
        """End all streams with this error, also those that begin later."""
        self._closed_by = error
        for task in self._waiting:
            self._end(task, error)

    def check(self) -> None:
        """End the streams whose caller is no longer admitted, also those that send nothing."""
        for task, check_admitted in self._waiting.items():
            try:
                check_admitted()
            except HaiError as error:
                self._end(task, error)

    def _end(self, task: asyncio.Task[Any], error: Exception) -> None:
        self._errors[task] = error
        task.cancel()

    async def wait_for_response(
        self, response: Awaitable[Response], check_admitted: CheckAdmitted
    ) -> Response:
        """Return the response. Raise the error with which the stream is ended in the meantime."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = check_admitted
        try:
            if self._closed_by is not None:
                self._end(task, self._closed_by)
            return await response
        except asyncio.CancelledError:
            if task not in self._errors:
                raise
            task.uncancel()
            raise self._errors[task] from None
        finally:
            del self._waiting[task]
            self._errors.pop(task, None)


def wrap(
    handler: Handler,
    wrap_unary: Callable[[UnaryMethod], UnaryMethod],
    scope: StreamScope,
    closer: StreamCloser,
) -> Handler:
    """Wrap a unary method by `wrap_unary`. Run a streaming method inside `scope`; `closer` can end it.

    The function that `scope` yields is called before each response, because a token can expire during a stream.
    """
    decode = handler.request_deserializer
    codec: Any = {
        "request_deserializer": _decode_or_raise(decode)
        if handler.request_streaming
        else _decode_or_mark(decode),
        "response_serializer": handler.response_serializer,
    }
    method: Any
    if (method := handler.unary_unary) is not None:
        return grpc.unary_unary_rpc_method_handler(wrap_unary(method), **codec)  # type: ignore[arg-type]
    if (method := handler.unary_stream) is not None:
        return grpc.unary_stream_rpc_method_handler(_wrap_stream(method, scope, closer), **codec)
    if (method := handler.stream_unary) is not None:
        return grpc.stream_unary_rpc_method_handler(_wrap_coroutine(method, scope), **codec)
    method = _wrap_stream(handler.stream_stream, scope, closer)
    return grpc.stream_stream_rpc_method_handler(method, **codec)


def _decode_or_mark(decode: Decode | None) -> Decode:
    """Return a decoder that does not raise, because grpc would send its own error before the token is checked."""

    def decode_message(data: bytes) -> Any:
        try:
            return decode(data) if decode else data
        except DecodeError:
            return Undecodable()

    return decode_message


def _decode_or_raise(decode: Decode | None) -> Decode:
    """Return a decoder for the messages of a stream. Its error reaches the service, which reads the stream."""

    def decode_message(data: bytes) -> Any:
        try:
            return decode(data) if decode else data
        except DecodeError:
            raise undecodable_error() from None

    return decode_message


def _wrap_stream(method: Any, scope: StreamScope, closer: StreamCloser) -> Any:
    if not inspect.isasyncgenfunction(method):
        return _wrap_coroutine(method, scope)

    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        async with (
            scope(request, context) as check_admitted,
            aclosing(method(request, context)) as responses,
        ):
            while (
                response := await closer.wait_for_response(anext(responses, _END), check_admitted)
            ) is not _END:
                check_admitted()
                yield response

    return stream


def _wrap_coroutine(method: Any, scope: StreamScope) -> Any:
    async def stream(request: Any, context: Context) -> Any:
        async with scope(request, context):
            return await method(request, context)

    return stream

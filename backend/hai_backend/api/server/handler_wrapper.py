"""Puts one async context manager around any kind of RPC handler, whichever way it was written.

A handler of a streaming call may be an async generator, or a coroutine that writes by itself as grpc's health service
does; each must be wrapped by its own kind, because grpc looks at it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from hai_backend.domain.errors import HaiError, Invalid, Violation

Answer = TypeVar("Answer")
_END = object()
Context = aio.ServicerContext[Any, Any]
Admitted = Callable[[], None]  # raises once the caller may not be here any more
Around = Callable[[Any, Context], AbstractAsyncContextManager[Admitted]]
Unary = Callable[[Any, Context], Coroutine[Any, Any, Any]]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Undecodable:
    """Stands for a request that is no message of the expected kind."""


def unreadable() -> Invalid:
    """The refusal of such a request."""
    message = "cannot be read: it is not the message that this call takes; are client and server of one version?"
    return Invalid((Violation("request", message),), reason="UNREADABLE")


class Closing:
    """Ends streams from outside: each waits for its next answer within `before_end`.

    grpc gives a handler that is cancelled no status, so the cancellation becomes an error here.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[Any], Admitted] = {}
        self._ended: dict[asyncio.Task[Any], Exception] = {}
        self._why: Exception | None = None

    def close(self, why: Exception) -> None:
        """End all streams, also those that begin later, with this error."""
        self._why = why
        for task in self._waiting:
            self._end(task, why)

    def check(self) -> None:
        """End the streams of those who may not be here any more; nothing else would wake a quiet one."""
        for task, still_admitted in self._waiting.items():
            try:
                still_admitted()
            except HaiError as error:
                self._end(task, error)

    def _end(self, task: asyncio.Task[Any], why: Exception) -> None:
        self._ended[task] = why
        task.cancel()

    async def before_end(self, answer: Awaitable[Answer], still_admitted: Admitted) -> Answer:
        """The answer, or the error once we are closed or the caller is not admitted."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = still_admitted
        try:
            if self._why is not None:
                self._end(task, self._why)
            return await answer
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            raise self._ended[task] from None
        finally:
            del self._waiting[task]
            self._ended.pop(task, None)


def wrap(
    handler: Handler, unary: Callable[[Unary], Unary], around: Around, closing: Closing
) -> Handler:
    """`unary` replaces handlers of unary calls; `around` surrounds those of streams, which `closing` may end.

    What `around` gives is called before each answer of a stream, and may raise: a token can expire while it is open.
    """
    decode = handler.request_deserializer
    codec: Any = {
        "request_deserializer": (_strict if handler.request_streaming else _tolerant)(decode),
        "response_serializer": handler.response_serializer,
    }
    inner: Any
    if (inner := handler.unary_unary) is not None:
        return grpc.unary_unary_rpc_method_handler(unary(inner), **codec)  # type: ignore[arg-type]
    if (inner := handler.unary_stream) is not None:
        return grpc.unary_stream_rpc_method_handler(_surround(inner, around, closing), **codec)
    if (inner := handler.stream_unary) is not None:
        return grpc.stream_unary_rpc_method_handler(_written(inner, around), **codec)
    inner = _surround(handler.stream_stream, around, closing)
    return grpc.stream_stream_rpc_method_handler(inner, **codec)


def _tolerant(decode: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """grpc would answer a broken request by itself, with its own trace, before anybody asked for a token."""

    def decode_or_tell(data: bytes) -> Any:
        try:
            return decode(data) if decode else data
        except DecodeError:
            return Undecodable()

    return decode_or_tell


def _strict(decode: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """In the middle of a stream whoever reads the next message gets the refusal."""

    def decode_or_refuse(data: bytes) -> Any:
        try:
            return decode(data) if decode else data
        except DecodeError:
            raise unreadable() from None

    return decode_or_refuse


def _surround(inner: Any, around: Around, closing: Closing) -> Any:
    if inspect.isasyncgenfunction(inner):
        return _generated(inner, around, closing)
    return _written(inner, around)


def _generated(inner: Any, around: Around, closing: Closing) -> Any:
    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        async with (
            around(request, context) as still_admitted,
            aclosing(inner(request, context)) as answers,
        ):
            while (
                answer := await closing.before_end(anext(answers, _END), still_admitted)
            ) is not _END:
                still_admitted()
                yield answer

    return stream


def _written(inner: Any, around: Around) -> Any:
    async def stream(request: Any, context: Context) -> Any:
        async with around(request, context):
            return await inner(request, context)

    return stream

"""Puts one async context manager around any kind of RPC handler, whichever way it was written.

A handler of a streaming call may be an async generator, or a coroutine that writes by itself as grpc's health service
does; each must be wrapped by its own kind, because grpc looks at it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

Context = aio.ServicerContext[Any, Any]
Around = Callable[[Any, Context], AbstractAsyncContextManager[Callable[[], None]]]
Unary = Callable[[Any, Context], Awaitable[Any]]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Undecodable:
    """Stands for a request that is no message of the expected kind."""


def wrap(handler: Handler, unary: Callable[[Unary], Unary], around: Around) -> Handler:
    """`unary` replaces handlers of unary calls; `around` surrounds those of streams.

    What `around` gives is called before each answer of a stream, and may raise: a token can expire while it is open.
    """
    decode = handler.request_deserializer
    codec: Any = {
        "request_deserializer": decode if handler.request_streaming else _tolerant(decode),
        "response_serializer": handler.response_serializer,
    }
    inner: Any
    if (inner := handler.unary_unary) is not None:
        return grpc.unary_unary_rpc_method_handler(unary(inner), **codec)  # type: ignore[arg-type]
    if (inner := handler.unary_stream) is not None:
        return grpc.unary_stream_rpc_method_handler(_surround(inner, around), **codec)
    if (inner := handler.stream_unary) is not None:
        return grpc.stream_unary_rpc_method_handler(_written(inner, around), **codec)
    return grpc.stream_stream_rpc_method_handler(_surround(handler.stream_stream, around), **codec)


def _tolerant(decode: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """grpc would answer a broken request by itself, with its own trace, before anybody asked for a token."""

    def decode_or_tell(data: bytes) -> Any:
        try:
            return decode(data) if decode else data
        except DecodeError:
            return Undecodable()

    return decode_or_tell


def _surround(inner: Any, around: Around) -> Any:
    return (
        _generated(inner, around) if inspect.isasyncgenfunction(inner) else _written(inner, around)
    )


def _generated(inner: Any, around: Around) -> Any:
    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        async with around(request, context) as still_admitted:
            async for answer in inner(request, context):
                still_admitted()
                yield answer

    return stream


def _written(inner: Any, around: Around) -> Any:
    async def stream(request: Any, context: Context) -> Any:
        async with around(request, context):
            return await inner(request, context)

    return stream

"""A server that does not lead passes every call on to the one that does, byte by byte.

It reads neither requests nor tokens: the leader's gate does. On the wire a unary call is a stream of one message, so
one handler serves all kinds. A call is passed on once: a follower that gets such a one refuses it, so none can circle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc
from grpc import aio

from hai.client.connection.stream_call import StreamCall
from hai_backend.api.server import errors
from hai_backend.api.server.handler_wrapper import Context, Handler
from hai_backend.api.server.interceptors import abort
from hai_backend.api.server.router import OURS, Find, Nobody
from hai_backend.domain.errors import NoLeader

HOPS = "hai-hops"
_DETAILS = "grpc-status-details-bin"
_OF_A_CONNECTION = frozenset({"user-agent", "te", "content-type", HOPS})
_OF_A_LOST_CONNECTION = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,  # grpc.aio, when it wrote to a call that broke, and heard no more
)
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # the leader keeps to the limits, and so does our own door
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class Forwarding:
    """The leader at an address, reached with these credentials (None: plaintext)."""

    def __init__(self, leader: str, credentials: grpc.ChannelCredentials | None) -> None:
        self._leader = leader
        self._channel = (
            aio.insecure_channel(leader, options=_OPTIONS)
            if credentials is None
            else aio.secure_channel(leader, credentials, options=_OPTIONS)
        )

    async def close(self) -> None:
        """End what is passed on: the callers hear that there is no leader, and ask again."""
        await self._channel.close()

    async def handler(self, find: Find, details: grpc.HandlerCallDetails) -> Handler | None:
        """See switchboard.Answering."""
        if not details.method.startswith(OURS):
            return await find(details)
        if any(key == HOPS for key, _ in details.invocation_metadata or ()):
            return await Nobody("this server does not lead any more").handler(find, details)

        async def passed_on(requests: AsyncIterator[bytes], context: Context) -> None:
            await self._pass_on(details.method, requests, context)

        return grpc.stream_stream_rpc_method_handler(passed_on)

    async def _pass_on(self, method: str, requests: AsyncIterator[bytes], context: Context) -> None:
        try:
            stream: StreamCall[bytes, bytes] = StreamCall(
                self._channel.stream_stream(method)(
                    cast(Any, requests),
                    timeout=context.time_remaining(),
                    metadata=_metadata(context),
                )
            )
        except aio.UsageError:  # it came while we were closed
            end = aio.AioRpcError(grpc.StatusCode.CANCELLED)
        else:
            end = await _answers(stream, context)
        code, trailer = end.code(), tuple(end.trailing_metadata() or ())
        if _lost(code, trailer):
            why = f"the leading server at {self._leader} was lost; try again in a moment"
            await abort(context, errors.status_of(NoLeader(why), method))
        if code is not grpc.StatusCode.OK:
            await context.abort(code, end.details() or "", trailer)
        context.set_trailing_metadata(trailer)


async def _answers(stream: StreamCall[bytes, bytes], context: Context) -> aio.AioRpcError:
    """Pass on what the leader answers. Returns how the call ended; CANCELLED also when we are closed."""
    try:
        if initial := tuple(await stream.initial_metadata() or ()):
            await context.send_initial_metadata(initial)
        async for answer in stream:  # also those that came before a write failed
            await context.write(answer)
    except aio.AioRpcError:
        pass  # the status says the same
    finally:
        stream.cancel("the caller left")
    return await stream.status()


def _metadata(context: Context) -> tuple[tuple[str, str | bytes], ...]:
    sent = context.invocation_metadata() or ()
    kept = ((k, v) for k, v in sent if k not in _OF_A_CONNECTION and not k.startswith("grpc-"))
    return (*kept, (HOPS, "1"))


def _lost(code: grpc.StatusCode, trailer: Sequence[Any]) -> bool:
    """True when the connection, not the leader, has ended the call: the leader's own refusals carry details."""
    if code not in _OF_A_LOST_CONNECTION:
        return False
    return all(key != _DETAILS for key, _ in trailer)

"""Forwards every call from a server that does not lead to the leading server, as raw bytes.

The follower reads neither requests nor tokens; the leader checks them. A unary call is a stream of one message on the
wire, so one handler serves all kinds of calls. A follower refuses a call that another follower has forwarded, so that
no call circles.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc
from grpc import aio

from hai.client.connection.stream_call import StreamCall
from hai_backend.api.server import errors
from hai_backend.api.server.call_context import Context, Handler
from hai_backend.api.server.call_guard import abort
from hai_backend.api.server.router import HAI_PREFIX, FindBuiltin, RefusalRoute
from hai_backend.domain.errors import NoLeader

HOPS_KEY = "hai-hops"
_DETAILS_KEY = "grpc-status-details-bin"
_CONNECTION_KEYS = frozenset({"user-agent", "te", "content-type", HOPS_KEY})
_CONNECTION_LOST_CODES = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,  # from grpc.aio after a failed write to a broken call
)
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # The leader and the listening side of this server enforce the limits
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class LeaderRoute:
    """Leads to the server at the address `leader`. None as credentials means plaintext."""

    def __init__(self, leader: str, credentials: grpc.ChannelCredentials | None) -> None:
        self._leader = leader
        self._channel = (
            aio.insecure_channel(leader, options=_OPTIONS)
            if credentials is None
            else aio.secure_channel(leader, credentials, options=_OPTIONS)
        )

    async def close(self) -> None:
        """End all forwarded calls. Their callers get NoLeader and call again."""
        await self._channel.close()

    async def find_handler(
        self, find_builtin: FindBuiltin, details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if not details.method.startswith(HAI_PREFIX):
            return await find_builtin(details)
        if any(key == HOPS_KEY for key, _ in details.invocation_metadata or ()):
            route = RefusalRoute("this server does not lead any more")
            return await route.find_handler(find_builtin, details)

        async def forward(requests: AsyncIterator[bytes], context: Context) -> None:
            await self._forward(details.method, requests, context)

        return grpc.stream_stream_rpc_method_handler(forward)

    async def _forward(self, method: str, requests: AsyncIterator[bytes], context: Context) -> None:
        try:
            stream: StreamCall[bytes, bytes] = StreamCall(
                self._channel.stream_stream(method)(
                    cast(Any, requests),
                    timeout=context.time_remaining(),
                    metadata=_metadata(context),
                )
            )
        except aio.UsageError:  # the channel was closed in the meantime
            end = aio.AioRpcError(grpc.StatusCode.CANCELLED)
        else:
            end = await _return_responses(stream, context)
        code, trailer = end.code(), tuple(end.trailing_metadata() or ())
        if _is_connection_lost(code, trailer):
            why = f"the leading server at {self._leader} was lost; try again in a moment"
            await abort(context, errors.status_of(NoLeader(why), method))
        if code is not grpc.StatusCode.OK:
            await context.abort(code, end.details() or "", trailer)
        context.set_trailing_metadata(trailer)


async def _return_responses(stream: StreamCall[bytes, bytes], context: Context) -> aio.AioRpcError:
    """Send the leader's responses to the caller. Return how the call ended: CANCELLED if the route was closed."""
    try:
        if initial := tuple(await stream.initial_metadata() or ()):
            await context.send_initial_metadata(initial)
        async for response in stream:  # yields also responses that arrived before a failed write
            await context.write(response)
    except aio.AioRpcError:
        pass  # stream.status() returns the same error
    finally:
        stream.cancel("the caller left")
    return await stream.status()


def _metadata(context: Context) -> tuple[tuple[str, str | bytes], ...]:
    received = context.invocation_metadata() or ()
    forwarded = (
        (k, v) for k, v in received if k not in _CONNECTION_KEYS and not k.startswith("grpc-")
    )
    return (*forwarded, (HOPS_KEY, "1"))


def _is_connection_lost(code: grpc.StatusCode, trailer: Sequence[Any]) -> bool:
    """Say whether a lost connection ended the call. A refusal by the leader carries details, a lost connection none."""
    return code in _CONNECTION_LOST_CODES and all(key != _DETAILS_KEY for key, _ in trailer)

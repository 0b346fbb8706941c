"""Transport of calls to the server: TLS, token, deadlines and retries. Every failure is raised as HaiError."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import grpc
from grpc import aio

from hai.client.connection.backoff import delays
from hai.client.connection.cancellation import is_being_cancelled
from hai.client.connection.multi_address import MultiAddressChannel
from hai.client.connection.stream_call import StreamCall
from hai.client.errors import Closed, HaiError, TimedOut, Unreachable, Untrusted, UsageError
from hai.client.profile import Profile

Stub = TypeVar("Stub")
Request = TypeVar("Request")
Answer = TypeVar("Answer")

DEADLINE_SECONDS = 10.0
ATTEMPTS = 4
LEADERLESS_ATTEMPTS = 12
"""Attempts while servers answer but none of them leads: these take four to nine seconds. A new leader is elected
within four.
"""
MESSAGE_BYTES = 16 * 1024 * 1024

_CORRECT_CA = "correct `ca` in the profile"

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),  # the server must permit this interval
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # so that a new channel does not inherit the back-off of an old one
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


class Transport(Protocol):
    """The methods of a connection that resources use. `Connection` and `fake.server.FakeTransport` implement them."""

    def stub(self, stub_class: Callable[[aio.Channel], Stub]) -> Stub:
        """Return the stub of a service."""

    async def unary(
        self,
        call: aio.UnaryUnaryMultiCallable[Request, Answer],
        request: Request,
        *,
        retry: bool = False,
        deadline: float | None = None,
    ) -> Answer:
        """Make one call within `deadline` seconds or the default. Only `retry` repeats it, while no server answers."""

    def stream(
        self, call: aio.UnaryStreamMultiCallable[Request, Answer], request: Request
    ) -> AsyncGenerator[Answer, None]:
        """Make a call with a stream of answers, without a deadline."""

    def duplex(
        self,
        call: aio.StreamStreamMultiCallable[Request, Answer],
        requests: AsyncIterator[Request],
    ) -> AsyncGenerator[Answer, None]:
        """Send requests and yield answers, without a deadline."""

    async def close(self) -> None:
        """Close the connection."""


class Connection:
    """The transport to a server over gRPC."""

    def __init__(self, profile: Profile, *, deadline: float = DEADLINE_SECONDS) -> None:
        profile.check()
        self.profile = profile
        self._deadline = deadline
        self._metadata = (("authorization", f"Bearer {profile.token}"),) if profile.token else ()
        self._is_closed = False

    # made on first use: it belongs to the running event loop
    @cached_property
    def _channel(self) -> MultiAddressChannel:
        profile = self.profile
        return MultiAddressChannel(
            profile.addresses, lambda server: open_channel(replace(profile, server=server))
        )

    def stub(self, stub_class: Callable[[aio.Channel], Stub]) -> Stub:
        """Return the stub of a service."""
        return stub_class(cast(aio.Channel, self._channel))

    async def unary(
        self,
        call: aio.UnaryUnaryMultiCallable[Request, Answer],
        request: Request,
        *,
        retry: bool = False,
        deadline: float | None = None,
    ) -> Answer:
        """Make one call. The deadline covers all attempts together."""
        loop = asyncio.get_running_loop()
        deadline_at = loop.time() + (self._deadline if deadline is None else deadline)
        await self._connect()
        attempts = ATTEMPTS
        for attempt, delay in enumerate(delays(largest=1.0), start=1):
            remaining = deadline_at - loop.time()
            try:
                return await call(request, timeout=remaining, metadata=self._metadata)
            except aio.AioRpcError as error:
                failure = self._convert_error(error)
                if failure.reason == "NO_LEADER":
                    attempts = LEADERLESS_ATTEMPTS
                last = attempt >= attempts or delay >= deadline_at - loop.time()
                if last or not retry or not _is_retriable(failure):
                    raise failure from error
            except asyncio.CancelledError:
                if is_being_cancelled():
                    raise
                raise self._closed_error() from None  # gRPC cancels the calls of a closed channel
            await asyncio.sleep(delay)
            await self._connect()
        raise AssertionError("delays never end")

    def stream(
        self, call: aio.UnaryStreamMultiCallable[Request, Answer], request: Request
    ) -> AsyncGenerator[Answer, None]:
        """Make a call with a stream of answers. It is cancelled when its consumer stops iterating."""
        return self._iterate_answers(lambda: call(request, metadata=self._metadata))

    def duplex(
        self,
        call: aio.StreamStreamMultiCallable[Request, Answer],
        requests: AsyncIterator[Request],
    ) -> AsyncGenerator[Answer, None]:
        """Send requests and yield answers, without a deadline. The call is cancelled when its consumer stops."""
        return self._iterate_answers(lambda: call(metadata=self._metadata), requests)

    async def _iterate_answers(
        self,
        start_call: Callable[
            [], aio.UnaryStreamCall[Any, Answer] | aio.StreamStreamCall[Any, Answer]
        ],
        requests: AsyncIterator[Any] | None = None,
    ) -> AsyncGenerator[Answer, None]:
        """Start a call and yield its answers, while `requests` are sent if there are any."""
        await self._connect()
        stream: StreamCall[Any, Answer] = StreamCall(start_call())
        async with _writing_requests(stream, requests):
            try:
                async for answer in stream:
                    yield answer
            except aio.AioRpcError as error:
                raise self._convert_error(error) from error
            finally:
                stream.cancel("its reader left")

    async def close(self) -> None:
        """Close the connection. Running and later calls raise Closed."""
        self._is_closed = True
        if "_channel" in self.__dict__:
            await self._channel.close()

    async def _connect(self) -> None:
        """Connect to an address. Raises Closed."""
        try:
            if not self._is_closed:
                await self._channel.connect()
        except aio.UsageError:  # raised by gRPC for a channel that was closed meanwhile
            if not self._is_closed:
                raise
        if self._is_closed:
            raise self._closed_error()

    def _closed_error(self) -> Closed:
        return Closed(f"the connection to the server at {self.profile.server} was closed")

    def _convert_error(self, error: aio.AioRpcError) -> HaiError:
        """Return the error to raise. If the server is unreachable or slow, the next call uses another address."""
        if self._is_closed and error.code() is grpc.StatusCode.CANCELLED:
            return self._closed_error()
        # imported late: most programs never have an error
        from hai.client.connection.grpc_errors import to_error

        failure = to_error(error, self.profile.server, token=bool(self._metadata))
        if isinstance(failure, Unreachable | TimedOut):
            self._channel.use_next_address()
        return failure


@asynccontextmanager
async def _writing_requests(
    stream: StreamCall[Any, Any], requests: AsyncIterator[Any] | None
) -> AsyncGenerator[None, None]:
    """Send the requests to a call while the block runs. An error of the requests ends the call and is raised here.

    grpc can do this itself, but waits forever for the next request of a call that has ended.
    """
    if requests is None:
        yield
        return
    writing = asyncio.create_task(_write(stream, requests))
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.wait([writing])
        if not writing.cancelled() and (error := writing.exception()) is not None:
            raise error


async def _write(stream: StreamCall[Any, Any], requests: AsyncIterator[Any]) -> None:
    try:
        async for request in requests:
            await stream.write(request)
        await stream.done_writing()
    except aio.AioRpcError:
        return  # reading raises the status
    except BaseException:  # also for a cancellation: the remaining requests would never be sent
        stream.cancel("its requests broke off")
        raise


def open_channel(profile: Profile) -> aio.Channel:
    """Open a channel for a profile: in plaintext on loopback or if the profile is insecure, else with TLS."""
    options = list(_OPTIONS)
    if is_loopback(profile.server):
        options.append(("grpc.enable_http_proxy", 0))  # a proxy cannot reach our loopback
    if not profile.ca and (profile.insecure or is_loopback(profile.server)):
        return aio.insecure_channel(profile.server, options=options)
    roots = _read_ca(profile.ca) if profile.ca else None
    credentials = grpc.ssl_channel_credentials(root_certificates=roots)
    return aio.secure_channel(profile.server, credentials, options=options)


def is_loopback(server: str) -> bool:
    """Return whether an address never leaves this machine."""
    if server.startswith(("unix:", "unix-abstract:")):
        return True
    host = server.rpartition(":")[0].strip("[]") or server
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_retriable(failure: HaiError) -> bool:
    return isinstance(failure, Unreachable) and not isinstance(failure, Untrusted | Closed)


def _read_ca(path: str) -> bytes:
    try:
        pem = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the certificate file {path}: {error.strerror}", hint=_CORRECT_CA
        ) from error
    if b"-----BEGIN CERTIFICATE-----" not in pem:
        raise UsageError(f"there is no certificate (PEM) in {path}", hint=_CORRECT_CA)
    return pem

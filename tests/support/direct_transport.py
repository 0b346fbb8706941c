"""A transport to a fake cluster in this process, without sockets, so the order of events is always the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from hai_backend.launch.kubernetes import api
from hai_backend.launch.kubernetes.api import Answer
from hai_backend.launch.kubernetes.errors import Unavailable, error_from
from hai_backend.testing.kube import FakeCluster
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.faults.requests import Answer as Refusal
from hai_backend.testing.kube.faults.requests import Close, Delay, Fault, Truncate
from hai_backend.testing.kube.request_info import RequestInfo, parse_request
from hai_backend.testing.kube.watch import Watch, WatchOptions
from tests.support.virtual_time import run_outside

_LATENCY_SECONDS = 0.002  # in each direction
_FAULT_DELAY_SECONDS = 1.0


class DirectTransport:
    """Implements launch.kubernetes.api.Transport."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    async def ask(self, call: api.Call, seconds: float) -> Answer:
        """Send a request, and return the answer. See Transport."""
        await asyncio.sleep(_LATENCY_SECONDS)
        try:
            answer = await self._answer(call)
        except ApiError as error:
            answer = Answer(error.code, json.dumps(error.status()).encode())
        await asyncio.sleep(_LATENCY_SECONDS)
        return answer

    async def lines(self, call: api.Call) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch. See Transport."""
        request, fault = self._receive(call)
        if isinstance(fault, Refusal):
            raise error_from(fault.error().code, json.dumps(fault.error().status()).encode())
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        running = asyncio.ensure_future(self._watch(request, fault, lines))
        try:
            while (event := await lines.get()) is not None:
                for line in event.splitlines(keepends=True):
                    yield line
            running.result()
        finally:
            running.cancel()

    async def close(self) -> None:
        """See Transport."""

    async def _answer(self, sent: api.Call) -> Answer:
        """Perform a request, with the fault that the cluster chooses for it."""
        request, fault = self._receive(sent)
        if isinstance(fault, Refusal):
            raise fault.error()
        if fault == Close():
            raise Unavailable("the connection broke")
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        body = b"" if sent.body is None else json.dumps(sent.body).encode()
        reply = run_outside(self._cluster.perform, request, sent.form, body)
        if isinstance(fault, Close):
            raise Unavailable("the connection broke")
        return Answer(reply.code, reply.body[: len(reply.body) // (1 + (fault == Truncate()))])

    def _receive(self, sent: api.Call) -> tuple[RequestInfo, Fault | None]:
        resources = self._cluster.api.resources
        request = parse_request(resources, sent.method, sent.path, dict(sent.query))
        return request, self._cluster.faults.decide(request)

    async def _watch(
        self, call: RequestInfo, fault: Fault | None, lines: asyncio.Queue[bytes | None]
    ) -> None:
        """Put the events of a watch into `lines`, and end it early if the fault requires that."""
        cluster = self._cluster
        options = WatchOptions.parse(call.resource, call.namespace, dict(call.query))
        watch = Watch(options, cluster.api.store, cluster.timers, lag=1_000)
        watch.disturb = lambda event: cluster.watch_faults.apply(watch, event)
        cluster.server.watches.add(watch)
        try:
            async with asyncio.timeout(
                _FAULT_DELAY_SECONDS if isinstance(fault, Close | Truncate) else None
            ):
                await watch.run(lines.put)
        except TimeoutError:
            raise Unavailable("the stream broke") from None
        finally:
            cluster.server.watches.discard(watch)
            lines.put_nowait(None)


class SimulatedTransport(DirectTransport):
    """The transport of all simulated servers to one cluster. A test can disconnect it."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self._outages = 0
        self._connected = asyncio.Event()
        self._connected.set()

    def disconnect(self) -> None:
        """Let no packet pass until `reconnect` has been called as often as `disconnect`."""
        self._outages += 1
        self._connected.clear()

    def reconnect(self) -> None:
        self._outages -= 1
        if not self._outages:
            self._connected.set()

    async def ask(self, call: api.Call, seconds: float) -> Answer:
        """Send a request. While disconnected, raise Unavailable after `seconds`. See Transport."""
        if self._outages:
            await asyncio.sleep(seconds)
            raise Unavailable("no answer in time")
        return await super().ask(call, seconds)

    async def lines(self, call: api.Call) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch. While disconnected, yield nothing. See Transport."""
        async with aclosing(super().lines(call)) as lines:
            async for line in lines:
                await self._connected.wait()
                yield line

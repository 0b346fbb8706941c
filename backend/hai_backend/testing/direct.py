"""The way to a fake cluster in this process without sockets: the same faults, and always in the same order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

from hai_backend.launch.kubernetes import transport
from hai_backend.launch.kubernetes.errors import Unavailable, error_of
from hai_backend.launch.kubernetes.transport import Answer
from hai_backend.testing.freezing import outside
from hai_backend.testing.kube import FakeCluster
from hai_backend.testing.kube.calls import Call, read_call
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.faults import Answer as Refusal
from hai_backend.testing.kube.faults import Close, Delay, Fault, Truncate
from hai_backend.testing.kube.watch_query import Asked
from hai_backend.testing.kube.watches import Watch

_WAY_SECONDS = 0.002  # there, and back
_CUT_SECONDS = 1.0


class DirectTransport:
    """Implements launch.kubernetes.transport.Transport."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    async def ask(self, call: transport.Call, seconds: float) -> Answer:
        """See Transport."""
        await asyncio.sleep(_WAY_SECONDS)
        try:
            answer = await self._answer(call)
        except ApiError as error:
            answer = Answer(error.code, json.dumps(error.status()).encode())
        await asyncio.sleep(_WAY_SECONDS)
        return answer

    async def lines(self, call: transport.Call) -> AsyncGenerator[bytes, None]:
        """See Transport."""
        asked, fault = self._met(call)
        if isinstance(fault, Refusal):
            raise error_of(fault.error().code, json.dumps(fault.error().status()).encode())
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        running = asyncio.ensure_future(self._watch(asked, fault, lines))
        try:
            while (said := await lines.get()) is not None:
                for line in said.splitlines(keepends=True):
                    yield line
            running.result()
        finally:
            running.cancel()

    async def close(self) -> None:
        """See Transport."""

    async def _answer(self, asked: transport.Call) -> Answer:
        call, fault = self._met(asked)
        if isinstance(fault, Refusal):
            raise fault.error()
        if fault == Close():
            raise Unavailable("the connection broke")
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        body = b"" if asked.body is None else json.dumps(asked.body).encode()
        reply = outside(self._cluster.perform, call, asked.form, body)
        if isinstance(fault, Close):
            raise Unavailable("the connection broke")
        return Answer(reply.code, reply.body[: len(reply.body) // (1 + (fault == Truncate()))])

    def _met(self, asked: transport.Call) -> tuple[Call, Fault | None]:
        resources = self._cluster.api.resources
        call = read_call(resources, asked.method, asked.path, dict(asked.query))
        return call, self._cluster.faults.decide(call)

    async def _watch(
        self, call: Call, fault: Fault | None, lines: asyncio.Queue[bytes | None]
    ) -> None:
        cluster = self._cluster
        asked = Asked.read(call.resource, call.namespace, dict(call.query))
        watch = Watch(asked, cluster.api.store, cluster.timers, lag=1_000)
        watch.disturb = lambda said: cluster.watch_faults.apply(watch, said)
        cluster.server.watches.add(watch)
        try:
            async with asyncio.timeout(
                _CUT_SECONDS if isinstance(fault, Close | Truncate) else None
            ):
                await watch.run(lines.put)
        except TimeoutError:
            raise Unavailable("the stream broke") from None
        finally:
            cluster.server.watches.discard(watch)
            lines.put_nowait(None)

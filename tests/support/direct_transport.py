"""The way to a fake cluster in this process without sockets: the same faults, and always in the same order."""

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
from hai_backend.testing.kube.request_info import Call, read_call
from hai_backend.testing.kube.watch import Asked, Watch
from tests.support.virtual_time import outside

_WAY_SECONDS = 0.002  # there, and back
_CUT_SECONDS = 1.0


class DirectTransport:
    """Implements launch.kubernetes.api.Transport."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    async def ask(self, call: api.Call, seconds: float) -> Answer:
        """See Transport."""
        await asyncio.sleep(_WAY_SECONDS)
        try:
            answer = await self._answer(call)
        except ApiError as error:
            answer = Answer(error.code, json.dumps(error.status()).encode())
        await asyncio.sleep(_WAY_SECONDS)
        return answer

    async def lines(self, call: api.Call) -> AsyncGenerator[bytes, None]:
        """See Transport."""
        asked, fault = self._met(call)
        if isinstance(fault, Refusal):
            raise error_from(fault.error().code, json.dumps(fault.error().status()).encode())
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

    async def _answer(self, asked: api.Call) -> Answer:
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

    def _met(self, asked: api.Call) -> tuple[Call, Fault | None]:
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


class StormTransport(DirectTransport):
    """Of one cluster, for all servers."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self._cuts = 0
        self._joined = asyncio.Event()
        self._joined.set()

    def cut(self) -> None:
        """No packet passes, until `join` was called as often."""
        self._cuts += 1
        self._joined.clear()

    def join(self) -> None:
        self._cuts -= 1
        if not self._cuts:
            self._joined.set()

    async def ask(self, call: api.Call, seconds: float) -> Answer:
        """See Transport."""
        if self._cuts:
            await asyncio.sleep(seconds)
            raise Unavailable("no answer in time")
        return await super().ask(call, seconds)

    async def lines(self, call: api.Call) -> AsyncGenerator[bytes, None]:
        """See Transport."""
        async with aclosing(super().lines(call)) as lines:
            async for line in lines:
                await self._joined.wait()
                yield line

"""An agent that only asks one server to renew its lease, and records when the server did."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio

from hai.client.connection.stream_call import StreamCall
from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.launch.base import RankKey


@dataclass
class Leases:
    """The answers of one server: refusals, and when each lease was renewed (monotonic time of the answer)."""

    renewed_at: list[float] = field(default_factory=list)
    refused: int = 0

    async def until_renewed(self) -> None:
        """Wait until the lease is renewed once more."""
        before = len(self.renewed_at)
        async with asyncio.timeout(20):
            while len(self.renewed_at) == before:  # noqa: ASYNC110 - a list has no event to wait for
                await asyncio.sleep(0.01)


@asynccontextmanager
async def asking(
    address: str, key: RankKey, token: str, every: float = 0.05
) -> AsyncIterator[Leases]:
    """Attach at this server as a rank whose program runs, and ask until the end; again when the stream ends."""
    leases = Leases()
    work = asyncio.create_task(_ask(leases, address, key, token, every))
    try:
        yield leases
    finally:
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()


async def _ask(leases: Leases, address: str, key: RankKey, token: str, every: float) -> None:
    metadata = (("authorization", f"Bearer {token}"),)
    while True:
        async with grpc.aio.insecure_channel(address) as channel:
            stub: rpc.AgentServiceAsyncStub = rpc.AgentServiceStub(channel)  # type: ignore[assignment]
            stream = StreamCall(stub.Attach(metadata=metadata))
            writing = asyncio.create_task(_write(stream, key, every))
            try:
                async for answer in stream:
                    if answer.WhichOneof("message") == "heartbeat":
                        if answer.heartbeat.lease_renewed:
                            leases.renewed_at.append(time.monotonic())
                        else:
                            leases.refused += 1
            except grpc.aio.AioRpcError:
                pass
            finally:
                writing.cancel()
                stream.cancel("asked enough")
                await asyncio.wait([writing])
        await asyncio.sleep(every)


async def _write(
    stream: StreamCall[pb.AttachRequest, pb.AttachResponse], key: RankKey, every: float
) -> None:
    hello = pb.AgentHello(
        task_id=key.task_id, run=key.run, rank=key.rank, address="127.0.0.1", started=True
    )
    try:
        await stream.write(pb.AttachRequest(hello=hello))
        for number in itertools.count(1):
            beat = pb.Heartbeat(number=number, unmeasured=True)
            await stream.write(pb.AttachRequest(heartbeat=beat))
            await asyncio.sleep(every)
    except grpc.aio.AioRpcError:
        return  # `_ask` attaches again

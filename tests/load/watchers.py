"""Generates the load of people who watch the task list while tasks change. A process of its own, over real gRPC.

python -m tests.load.watchers --server 127.0.0.1:PORT --token-file FILE --watchers 100 --rate 100

It cordons all nodes of the server first, so that no task starts.

Each change replaces a tag of a task by the time of the change. A watcher that finds the tag in a response therefore
knows how long ago the change was requested: the lag includes the call that makes the change. Watchers search the bytes
of responses instead of decoding them, so that this process does not become the bottleneck. It prints a
JSON object before the watchers connect, one when they are connected, and one with the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpc import aio

from hai.v1 import node_service_pb2 as nodes_pb
from hai.v1 import task_service_pb2 as tasks_pb
from hai.v1 import task_spec_pb2, user_pb2, user_service_pb2, watch_service_pb2
from hai.v1.node_service_pb2_grpc import NodeServiceStub
from hai.v1.task_service_pb2_grpc import TaskServiceStub
from hai.v1.user_service_pb2_grpc import UserServiceStub
from tests.bench.figures import percentile

_TAG = re.compile(rb"at-([0-9]{19})")
_STREAMS_PER_USER = 50  # the server allows 100
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection for each watcher
_WARM_UP_SECONDS = 2.0
_DRAIN_SECONDS = 2.0  # for the last changes to arrive
_CONCURRENT_CHANGES = 64


@dataclass(frozen=True, slots=True)
class Load:
    """What to generate. `distinct` gives each watcher a filter of its own; `merged` uses Watch for tasks and nodes."""

    watchers: int
    rate: float  # changes per second
    seconds: float
    tasks: int = 100
    distinct: bool = False
    merged: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What the watchers saw during the measured seconds, and what this process used."""

    changes: int  # that were made
    expected: int  # changes times watchers
    received: int  # of these; a task that changes twice between two responses is sent once
    lag_p50_ms: float
    lag_p99_ms: float
    responses: int
    bytes_per_watcher: float
    generator_cores: float
    began_at: float  # unix time
    ended_at: float


class Watcher:
    """Follows one stream, and notes the lag of each tag."""

    def __init__(self) -> None:
        self.lags_ns: list[int] = []
        self.responses = 0
        self.bytes = 0
        self.ready = asyncio.Event()

    async def run(self, call: Any) -> None:
        """Read until cancelled. The changes before `ready` belong to the first list."""
        async for response in call:
            now = time.time_ns()
            self.responses += 1
            self.bytes += len(response)
            self.lags_ns += [now - int(tag) for tag in _TAG.findall(response)]
            self.ready.set()

    def reset(self) -> None:
        """Forget what was received so far."""
        self.lags_ns, self.responses, self.bytes = [], 0, 0


async def generate(server: str, token: str, load: Load) -> Result:
    """Create users and tasks, connect the watchers, and make changes."""
    async with aio.insecure_channel(server) as channel:
        await _cordon_all(channel, token)
        tokens = await _operators(channel, token, -(-load.watchers // _STREAMS_PER_USER))
        stub, metadata = TaskServiceStub(channel), _metadata(token)
        ids = [await _create(stub, metadata, number) for number in range(load.tasks)]
        print(
            json.dumps({"connected": 0}), flush=True
        )  # whoever measures the server reads its memory
        watchers = [Watcher() for _ in range(load.watchers)]
        channels = [aio.insecure_channel(server, _OPTIONS) for _ in watchers]
        running = []
        for number, (watcher, watch_channel) in enumerate(zip(watchers, channels, strict=True)):
            call = _open(watch_channel, tokens[number // _STREAMS_PER_USER], number, load)
            running.append(asyncio.create_task(watcher.run(call)))
        ready = asyncio.gather(*(watcher.ready.wait() for watcher in watchers))
        await asyncio.wait([ready, *running], return_when=asyncio.FIRST_COMPLETED)
        for ended in (task for task in running if task.done()):
            ended.result()  # raises the error of the stream
        await ready
        print(json.dumps({"connected": len(watchers)}), flush=True)
        tags: dict[int, str] = {}
        await _change_all(stub, metadata, ids, tags, load.rate, _WARM_UP_SECONDS)
        await asyncio.sleep(_DRAIN_SECONDS)
        for watcher in watchers:
            watcher.reset()
        began_at, cpu = time.time(), time.process_time()
        changes = await _change_all(stub, metadata, ids, tags, load.rate, load.seconds)
        ended_at, used = time.time(), time.process_time() - cpu
        await asyncio.sleep(_DRAIN_SECONDS)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for watch_channel in channels:
            await watch_channel.close()
    lags = [lag / 1e6 for watcher in watchers for lag in watcher.lags_ns] or [0.0]
    return Result(
        changes=changes,
        expected=changes * load.watchers,
        received=sum(len(watcher.lags_ns) for watcher in watchers),
        lag_p50_ms=round(percentile(lags, 50), 1),
        lag_p99_ms=round(percentile(lags, 99), 1),
        responses=sum(watcher.responses for watcher in watchers),
        bytes_per_watcher=sum(w.bytes for w in watchers) / max(1, load.watchers),
        generator_cores=round(used / (ended_at - began_at), 3),
        began_at=began_at,
        ended_at=ended_at,
    )


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def _open(channel: aio.Channel, token: str, number: int, load: Load) -> Any:
    """Open a stream of undecoded responses."""
    request: Any = tasks_pb.WatchTasksRequest(
        filter=f"-name:nobody{number}" if load.distinct else ""
    )
    method = "/hai.v1.TaskService/WatchTasks"
    if load.merged:
        request = watch_service_pb2.WatchRequest(tasks=request, nodes={})
        method = "/hai.v1.WatchService/Watch"
    call = channel.unary_stream(method, request_serializer=type(request).SerializeToString)
    return call(request, metadata=_metadata(token))


async def _operators(channel: aio.Channel, token: str, number: int) -> list[str]:
    """Return tokens of users who see all tasks. They may exist already."""
    users, metadata, tokens = UserServiceStub(channel), _metadata(token), []
    for index in range(number):
        user = user_pb2.User(name=f"watcher{index}", role=user_pb2.ROLE_OPERATOR, active=True)
        with suppress(aio.AioRpcError):
            await users.CreateUser(user_service_pb2.CreateUserRequest(user=user), metadata=metadata)
        created = await users.CreateToken(
            user_service_pb2.CreateTokenRequest(user=user.name, scope=user_pb2.TOKEN_SCOPE_READ),
            metadata=metadata,
        )
        tokens.append(created.secret)
    return tokens


async def _cordon_all(channel: aio.Channel, token: str) -> None:
    nodes, metadata = NodeServiceStub(channel), _metadata(token)
    for node in (await nodes.ListNodes(nodes_pb.ListNodesRequest(), metadata=metadata)).nodes:
        request = nodes_pb.CordonNodeRequest(name=node.name, reason="load test")
        await nodes.CordonNode(request, metadata=metadata)


async def _create(stub: Any, metadata: Any, number: int) -> int:
    spec = task_spec_pb2.TaskSpec(version=2, name=f"load{time.time_ns()}-{number}")
    spec.spec.entrypoint = "train.py"
    task = await stub.CreateTask(tasks_pb.CreateTaskRequest(spec=spec), metadata=metadata)
    return int(task.id)


async def _change_all(
    stub: Any,
    metadata: Any,
    ids: Sequence[int],
    tags: dict[int, str],
    rate: float,
    seconds: float,
) -> int:
    """Change one task after the other at this rate. Return the number of changes. `tags` are the tags so far."""
    loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(_CONCURRENT_CHANGES)
    began, pending = loop.time(), set[asyncio.Task[None]]()

    async def change(task_id: int) -> None:
        tag = f"at-{time.time_ns()}"
        old, tags[task_id] = tags.get(task_id), tag
        request = tasks_pb.TagTaskRequest(id=task_id, add=[tag], remove=[old] if old else [])
        async with slots:
            await stub.TagTask(request, metadata=metadata)

    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - loop.time()))
        task = asyncio.create_task(change(ids[number % len(ids)]))
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.sleep(max(0.0, began + seconds - loop.time()))
    await asyncio.gather(*pending)
    return int(rate * seconds)


def main() -> None:
    """Read the command line and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--rate", type=float, default=100.0, help="changes per second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--distinct", action="store_true", help="a filter for each watcher")
    parser.add_argument("--merged", action="store_true", help="watch nodes too, on one stream")
    options = vars(parser.parse_args())
    server, token = options.pop("server"), options.pop("token_file").read_text().strip()
    result = asyncio.run(generate(server, token, Load(**options)))
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()

"""What workspaces cost the server: CPU time, latency and memory of pushes and reads. The client is a simple one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

import psutil

from hai.client.client import Client
from tests.bench.figures import Figure, percentile
from tests.support.servers import ServerProcess, server_process
from tests.support.workspaces import Pusher

FILES, BYTES = 20_000, 10_000
MANY = 200_000
TRIES = 15


def figures() -> Iterator[Figure]:
    with server_process() as server:
        yield from asyncio.run(_of_a_tree(server))
    with server_process() as server:
        yield asyncio.run(_of_many_files(server))


async def _of_a_tree(server: ServerProcess) -> list[Figure]:
    files = _tree()
    async with Client(server.profile()) as client:
        pusher = await Pusher(client, "tree").create()
        first, first_cpu = await _cost(server, lambda: pusher.push(files))
        looks = [await _cost(server, lambda: pusher.tree(since=1)) for _ in range(TRIES)]
        some = {path: files[path] + b"changed" for path in list(files)[:100]}
        _, hundred_cpu = await _cost(server, lambda: pusher.push(some))
        saves = [await _save(server, pusher, i) for i in range(TRIES)]
    return [
        Figure("first push of 20 000 files, 200 MB: wall", first, "s"),
        Figure("first push of 20 000 files, 200 MB: server CPU", first_cpu, "s", 4.8),
        Figure("look at 20 000 unchanged files: server CPU", percentile(_cpu(looks), 50), "s", 0.2),
        Figure("push of 100 changed files: server CPU", hundred_cpu, "s", 0.23),
        Figure("push of one file, acknowledged: median", percentile(saves, 50) * 1000, "ms", 50),
    ]


async def _of_many_files(server: ServerProcess) -> Figure:
    files = {f"d{i % 1000}/f{i}": b"%d" % i for i in range(MANY)}
    async with Client(server.profile()) as client:
        pusher = await Pusher(client, "many").create()
        await pusher.push(files)
    return Figure("memory of the server that took 200 000 files", _peak(server), "MB", 300)


def _tree() -> Mapping[str, bytes]:
    """Return files by path, half text and half random, like those of bench_sync.py."""
    draw, words = random.Random(1), [b"alpha ", b"beta ", b"gamma\n", b"def f(x): ", b"return "]
    text = b"".join(draw.choices(words, k=BYTES // 4))[: BYTES - 8]
    return {
        f"d{i % 200}/f{i}": draw.randbytes(BYTES) if i % 2 else text + b"%08d" % i
        for i in range(FILES)
    }


async def _cost(server: ServerProcess, do: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return wall seconds, and CPU seconds of the server."""
    process = _process(server)
    began, used = time.perf_counter(), process.cpu_times()
    await do()
    after = process.cpu_times()
    cpu = after.user + after.system - used.user - used.system
    return time.perf_counter() - began, cpu


async def _save(server: ServerProcess, pusher: Pusher, number: int) -> float:
    return (await _cost(server, lambda: pusher.push({"d1/f1": b"%d" % number})))[0]


def _cpu(costs: list[tuple[float, float]]) -> list[float]:
    return [cpu for _, cpu in costs]


def _process(server: ServerProcess) -> psutil.Process:
    assert server.process is not None
    return psutil.Process(server.process.pid)


def _peak(server: ServerProcess) -> float:
    """Return the peak memory in MB."""
    assert server.process is not None
    with open(f"/proc/{server.process.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024

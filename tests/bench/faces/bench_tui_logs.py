"""Logs in the app: keys in a log of 1 GB and in an endless line, and the memory of five live logs."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hai.client.client import Client
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.logs.lines import stamp
from hai_backend.logs.segments import path_of
from hai_tui.app import AppConfig, HaiApp
from hai_tui.screens.logs.logs_page import LogsPage
from tests.bench.figures import Figure, percentile
from tests.support.servers import ServerProcess, server_process

_GIGABYTE = 1 << 30
_SEGMENT = 16 << 20
_LINE = 100
_KEYS = 60
_RATE = 1000  # lines per second of each live log
_LIVE = f"""
import sys, time
for second in range(100_000):
    for line in range({_RATE // 10}):
        print("step", second, line, "loss 0.5", "x" * 60)
    sys.stdout.flush()
    time.sleep(0.1)
"""
_ENDLESS = """
import sys, time
while True:
    sys.stdout.write("x" * 200_000)
    sys.stdout.flush()
    time.sleep(0.1)
"""


def figures() -> Iterator[Figure]:
    """Yield the figures about logs."""
    with server_process("--nodes", "6") as server:
        yield from asyncio.run(_large(server))
        yield from asyncio.run(_live(server))


async def _large(server: ServerProcess) -> list[Figure]:
    profile = server.profile()
    async with Client(profile) as client:
        task = await client.tasks.create(_program("large", "true"))
        await client.tasks.wait(task.id, timeout=60)
    lines = _fill(server.home / "logs" / str(task.id) / "1", _GIGABYTE)
    async with _app(profile, f"logs {task.id}") as (page, pilot):
        first = await _until(lambda: page.pane is not None and len(page.pane.window) > 0)
        pane = page.pane
        assert pane is not None
        assert pane.reader is not None
        up = [await _key(pilot, "pageup") for _ in range(_KEYS)]
        top = await _key(pilot, "g")
        await _until(lambda: any("line 0 " in x.text for x in pane.window))
        down = [await _key(pilot, "pagedown") for _ in range(_KEYS)]
        end = await _key(pilot, "G")
        await _until(lambda: any(f"line {lines - 1} " in x.text for x in pane.window))
        held = pane.window.bytes
    return [
        Figure("log of 1 GB: opened to its last lines", first, "s", 2.0),
        Figure(
            "log of 1 GB: a page up or down, CPU, p95", percentile(up + down, 95) * 1e3, "ms", 100.0
        ),
        Figure(
            "log of 1 GB: to the beginning and back, CPU of a key", max(top, end) * 1e3, "ms", 200.0
        ),
        Figure("log of 1 GB: held in the window", held / 2**20, "MiB", 5.0),
    ]


async def _live(server: ServerProcess) -> list[Figure]:
    profile = server.profile()
    async with Client(profile) as client:
        specs = [_program(f"live{n}", sys.executable, "-c", _LIVE) for n in range(5)]
        ids = [(await client.tasks.create(spec)).id for spec in specs]
        long_line = (
            await client.tasks.create(_program("endless", sys.executable, "-c", _ENDLESS))
        ).id
        async with _app(profile, f"logs {ids[0]}") as (page, pilot):
            for id in ids[1:]:
                await page._open(str(id), "all")
            await asyncio.sleep(5)
            keys = [await _key(pilot, key) for key in ("up", "pageup", "G") * 10]
            await asyncio.sleep(5)
            lines = sum(len(pane.window) for pane in page.panes)
            memory = _resident()
        async with _app(profile, f"logs {long_line}") as (page, pilot):
            await asyncio.sleep(3)
            long_keys = [await _key(pilot, key) for key in ("right", "up", "G") * 10]
        for id in [*ids, long_line]:
            await client.tasks.stop(id)
    return [
        Figure("five live logs: a key, CPU, p95", percentile(keys, 95) * 1e3, "ms", 100.0),
        Figure("five live logs: lines held", lines, "lines"),
        Figure("five live logs: memory of the app", memory, "MiB", 300.0),
        Figure("one endless line: a key, CPU, p95", percentile(long_keys, 95) * 1e3, "ms", 100.0),
    ]


def _fill(directory: Path, size: int) -> int:
    """Write a log as ranks print it, in segments that begin with a whole line. Return the number of lines."""
    directory.mkdir(parents=True, exist_ok=True)
    offset = number = 0
    while offset < size:
        part, held = [], 0
        while held < _SEGMENT:
            text = f"line {number} ".encode().ljust(_LINE, b".")
            part.append(stamp(1_800_000_000 + number / 1000) + text + b"\n")
            held += len(part[-1])
            number += 1
        data = b"".join(part)
        path_of(directory, 0, offset).write_bytes(data)
        offset += len(data)
    return number


def _program(name: str, *command: str) -> TaskSpec:
    program = ProgramSpec(
        entrypoint=command[0], parameters=command[1:], entrypoint_executable=True, workspace="/tmp"
    )
    return TaskSpec(version=2, name=name, spec=program, resource=ResourceSpec(node_count=1))


@asynccontextmanager
async def _app(profile: Any, start: str) -> AsyncIterator[tuple[LogsPage, Any]]:
    app = HaiApp(AppConfig(chosen=profile, start=start))
    async with app.run_test(size=(120, 40)) as pilot:
        await _until(lambda: isinstance(app.screen, LogsPage))
        assert isinstance(app.screen, LogsPage)
        yield app.screen, pilot
        await app.session.close()


async def _key(pilot: Any, key: str) -> float:
    """Return the CPU seconds until every widget has handled the key. Does not wait for a live log to end."""
    before = time.process_time()
    pilot.app.simulate_key(key)
    await pilot._wait_for_screen()
    return time.process_time() - before


async def _until(true: Callable[[], bool], patience: float = 60.0) -> float:
    """Wait until `true` returns true, and return the seconds."""
    begin = time.monotonic()
    while not true():
        if time.monotonic() - begin > patience:
            raise AssertionError("it did not come true")
        await asyncio.sleep(0.01)
    return time.monotonic() - begin


def _resident() -> float:
    """Return the memory of this process in MiB, after a garbage collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20

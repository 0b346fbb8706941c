"""People who watch the task list while tasks change: the lag of changes, and what the server needs for it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.bench.figures import Figure
from tests.support.servers import server_process

SECONDS = 15.0
SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of tests.load.watchers, and the use of the server meanwhile."""

    load: dict[str, Any]
    server_cores: float
    bytes_per_watcher: float  # of memory


@dataclass(slots=True)
class CpuSamples:
    """The CPU seconds of a process over time."""

    process: psutil.Process
    samples: list[tuple[float, float]] = field(default_factory=list)  # unix time, CPU seconds

    def cores(self, began_at: float, ended_at: float) -> float:
        """Return the mean use between two times."""
        within = [sample for sample in self.samples if began_at <= sample[0] <= ended_at]
        (first_at, first), (last_at, last) = within[0], within[-1]
        return (last - first) / (last_at - first_at)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        ended = threading.Event()

        def sample() -> None:
            while not ended.wait(SAMPLE_SECONDS):
                self.samples.append((time.time(), sum(self.process.cpu_times()[:2])))

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def figures() -> Iterator[Figure]:
    alone = measure("--watchers", "0", "--rate", "100")
    yield Figure("100 changes/s that nobody watches, server", alone.server_cores, "cores")
    hundred = measure("--watchers", "100", "--rate", "100")
    yield from _figures("100 watchers, 100 changes/s", hundred, lag_bar=300, cores_bar=0.4)
    merged = measure("--watchers", "100", "--rate", "100", "--merged", "--distinct")
    yield from _figures("the same, with nodes, each with its own filter", merged)
    many = measure("--watchers", "500", "--rate", "50")
    yield from _figures("500 watchers, 50 changes/s", many, lag_bar=500)


def _figures(
    what: str, measured: Measured, lag_bar: float | None = None, cores_bar: float | None = None
) -> Iterator[Figure]:
    load = measured.load
    yield Figure(f"{what}: lag p50", load["lag_p50_ms"], "ms")
    yield Figure(f"{what}: lag p99", load["lag_p99_ms"], "ms", lag_bar)
    received = load["received"] / load["expected"]
    yield Figure(f"{what}: changes received", received, "of all", 0.9, at_least=True)
    yield Figure(f"{what}: server", measured.server_cores, "cores", cores_bar)
    yield Figure(f"{what}: load generator", load["generator_cores"], "cores")
    memory = measured.bytes_per_watcher / 1000
    yield Figure(f"{what}: memory per watcher", memory, "kB", 200)
    sent = load["bytes_per_watcher"] / 1000 / SECONDS
    yield Figure(f"{what}: sent per watcher", sent, "kB/s")


def measure(*arguments: str) -> Measured:
    """Run the load generator against a new server."""
    with tempfile.TemporaryDirectory(prefix="hai-bench-") as folder, server_process() as server:
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        token = Path(folder, "token")
        token.write_text(server.profile().token)
        command = [sys.executable, "-m", "tests.load.watchers", "--server", server.address()]
        command += ["--token-file", str(token), "--seconds", str(SECONDS), *arguments]
        generator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert generator.stdout is not None
        before = _report(generator.stdout.readline(), process)
        connected = _report(generator.stdout.readline(), process)
        cpu = CpuSamples(process)
        with cpu.sampled():
            load = json.loads(generator.stdout.readline())
        generator.wait()
    memory = (connected["memory"] - before["memory"]) / max(1, connected["connected"])
    return Measured(load, cpu.cores(load["began_at"], load["ended_at"]), memory)


def _report(line: str, process: psutil.Process) -> dict[str, Any]:
    """Return a report of the generator, and the memory of the server at that time."""
    return {**json.loads(line), "memory": process.memory_info().rss}

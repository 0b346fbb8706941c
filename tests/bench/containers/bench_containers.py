"""How long a dev container takes until JupyterLab answers through the proxy, and how early a notice is given.

The CPU time is measured too, because wall time says little on a busy machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil

from hai.v1.task_pb2 import RUN_STATE_RUNNING, Task
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, ServiceSpec, TaskSpec
from tests.bench.figures import Figure
from tests.support.service_cluster import ServiceCluster, browser, process_service_cluster, sign_in

_BAR_SECONDS = 10.0
_GRACE, _MARGIN, _TIMES = 1.0, 2.0, 8
_WITNESS = """
import os, shutil, signal, sys, time
number = sys.argv[1]
def note():
    with open(f"{number}.alive.part", "w") as file:
        file.write(str(time.time()))
    os.replace(f"{number}.alive.part", f"{number}.alive")
def leave(*_):
    note()
    sys.exit()
signal.signal(signal.SIGTERM, leave)
while True:
    if os.path.exists(os.environ["HAI_NOTICE_FILE"]) and not os.path.exists(f"{number}.notice"):
        shutil.copy(os.environ["HAI_NOTICE_FILE"], f"{number}.notice")
    note()
    time.sleep(0.01)
"""
"""Notes that it lives, as often as it can, and when it is told to end."""
_PROGRAM = ProgramSpec(entrypoint="sleep", parameters=["infinity"], entrypoint_executable=True)


def figures() -> Iterator[Figure]:
    with TemporaryDirectory(prefix="hai-bench-") as directory:
        yield from asyncio.run(_measured(Path(directory)))
    with TemporaryDirectory(prefix="hai-bench-") as directory:
        yield asyncio.run(_noticed(Path(directory)))


async def _measured(directory: Path) -> list[Figure]:
    async with process_service_cluster(directory) as cluster, browser() as web:
        began = time.perf_counter()
        lab = TaskSpec(
            version=2,
            name="lab",
            task_type="jupyter",
            spec=_PROGRAM,
            services=[ServiceSpec(name="jupyter")],
        )
        task = await cluster.client.tasks.create(lab)
        url = await sign_in(web, cluster.client, task.id)
        await cluster.wait_ready(task.id, "jupyter")
        await _opened(web, f"{url}lab")
        ready = time.perf_counter() - began
        pid = (await cluster.client.containers.get(task.id)).services[0].pid
        times = psutil.Process(pid).cpu_times()
    return [
        Figure("dev container asked for until Lab answers", ready, "s", _BAR_SECONDS),
        Figure("CPU of JupyterLab until then", times.user + times.system, "s", _BAR_SECONDS),
    ]


async def _noticed(directory: Path) -> Figure:
    """Return the shortest time from a notice to the end of a program in the container, less the grace period."""
    async with process_service_cluster(directory) as cluster:
        left = []
        for number in range(_TIMES):
            pair = [await _witness(cluster, directory, f"{number}-{i}") for i in range(2)]
            urgent = ProgramSpec(entrypoint="true", entrypoint_executable=True)
            both = ResourceSpec(node_count=2)
            asked = TaskSpec(version=2, name="u", priority=50, spec=urgent, resource=both)
            await cluster.client.tasks.wait(
                (await cluster.client.tasks.create(asked)).id, timeout=60
            )
            left += [_lasted(directory, f"{number}-{i}") - _GRACE for i in range(2)]
            for task in pair:
                await cluster.client.tasks.stop(task.id)
    name = f"notice before a reclaim, beyond the grace, least of {len(left)}"
    return Figure(name, min(left), "s", 0.0, at_least=True)


async def _witness(cluster: ServiceCluster, directory: Path, number: str) -> Task:
    """Start a spot container, whose program records its notice and that it still runs."""
    program = ProgramSpec(
        entrypoint=sys.executable,
        parameters=["-c", _WITNESS, number],
        entrypoint_executable=True,
        workspace=str(directory),
    )
    spot = TaskSpec(
        version=2,
        name=f"witness-{number}",
        task_type="jupyter",
        spec=program,
        resource=ResourceSpec(is_spot=True),
        options=OptionsSpec(save_within=_GRACE + _MARGIN),
    )
    task = await cluster.client.tasks.create(spot)
    await cluster.wait_until(task.id, lambda t: t.run.state == RUN_STATE_RUNNING)
    for _ in range(1000):
        if (directory / f"{number}.alive").exists():
            break
        await asyncio.sleep(0.02)
    return task


def _lasted(directory: Path, number: str) -> float:
    """Return the seconds from the notice until the program stopped running."""
    given = json.loads((directory / f"{number}.notice").read_text())["given_at"]
    return float((directory / f"{number}.alive").read_text()) - float(given)


async def _opened(web: aiohttp.ClientSession, url: str) -> None:
    async with web.get(url) as answer:
        assert answer.status == 200
        await answer.read()

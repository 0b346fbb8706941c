"""How long a dev container takes until JupyterLab answers through the proxy, from the moment it was asked for.

CPU counts, too: on a machine that does other things the clock says little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil

from hai.v1.task_spec_pb2 import ProgramSpec, ServiceSpec, TaskSpec
from tests.bench.figures import Figure
from tests.e2e.reaching import browser, reach, signed_in

_BAR_SECONDS = 10.0
_PROGRAM = ProgramSpec(entrypoint="sleep", parameters=["infinity"], entrypoint_executable=True)


def figures() -> Iterator[Figure]:
    with TemporaryDirectory(prefix="hai-bench-") as directory:
        yield from asyncio.run(_measured(Path(directory)))


async def _measured(directory: Path) -> list[Figure]:
    async with reach(directory) as here, browser() as web:
        began = time.perf_counter()
        lab = TaskSpec(
            version=2,
            name="lab",
            task_type="jupyter",
            spec=_PROGRAM,
            services=[ServiceSpec(name="jupyter")],
        )
        task = await here.client.tasks.create(lab)
        url = await signed_in(web, here.client, task.id)
        await here.ready(task.id, "jupyter")
        await _opened(web, f"{url}lab")
        ready = time.perf_counter() - began
        pid = (await here.client.containers.get(task.id)).services[0].pid
        times = psutil.Process(pid).cpu_times()
    return [
        Figure("dev container asked for until Lab answers", ready, "s", _BAR_SECONDS),
        Figure("CPU of JupyterLab until then", times.user + times.system, "s", _BAR_SECONDS),
    ]


async def _opened(web: aiohttp.ClientSession, url: str) -> None:
    async with web.get(url) as answer:
        assert answer.status == 200
        await answer.read()

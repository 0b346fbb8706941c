"""`python -m tests.bench.containers.soak_websockets HOURS`: WebSockets of kernels through the proxy, for hours.

In a real JupyterLab in a dev container, one kernel prints a number every second. The WebSocket of another is idle until
the end, and is then used. Lines that are lost or repeated and closed WebSockets are errors. The memory of this
process is printed every minute. SIGTERM ends the test early, with the same check at the end.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil

from hai.client.tasks.container_spec import ContainerOptions, container_spec
from tests.support.kernels import execute, kernel, printed
from tests.support.service_cluster import browser, origin_of, process_service_cluster, sign_in


async def main(hours: float) -> None:
    with TemporaryDirectory(prefix="hai-soak-") as directory:
        async with process_service_cluster(Path(directory)) as cluster, browser() as web:
            task = await cluster.client.tasks.create(
                await container_spec(cluster.client.nodes, ContainerOptions("soak"))
            )
            url = await sign_in(web, cluster.client, task.id)
            await cluster.wait_ready(task.id, "jupyter")
            await _soak(web, url, int(hours * 3600))


async def _soak(web: aiohttp.ClientSession, url: str, seconds: int) -> None:
    async with web.get(f"{url}lab") as page:
        await page.read()
    xsrf = next(c.value for c in web.cookie_jar if c.key == "_xsrf")
    headers = {"X-XSRFToken": xsrf, "Origin": origin_of(url)}
    async with kernel(web, url, headers) as busy, kernel(web, url, headers) as silent:
        await _listen(busy, silent, seconds)


async def _listen(
    busy: aiohttp.ClientWebSocketResponse, silent: aiohttp.ClientWebSocketResponse, seconds: int
) -> None:
    code = f"import time\nfor i in range({seconds}):\n    print(i, flush=True)\n    time.sleep(1)"
    await busy.send_json(execute(code))
    quiet = asyncio.ensure_future(printed(silent))  # only a reader answers pings
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    began, seen = time.monotonic(), 0
    while seen < seconds and not enough.is_set():
        for word in (await printed(busy)).split():
            assert int(word) == seen, f"{word} came, not {seen}"
            seen += 1
            if seen % 60 == 0:
                memory = psutil.Process().memory_info().rss / 2**20
                print(
                    f"{time.monotonic() - began:7.0f} s: {seen} lines, {memory:.0f} MiB", flush=True
                )
    await silent.send_json(execute("print('still here')"))
    assert await quiet == "still here\n"
    print(f"both websockets lived for {time.monotonic() - began:.0f} s; nothing was lost")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))

"""`python -m tests.bench.soak_websockets HOURS`: kernels' websockets through the proxy, for hours.

A real JupyterLab in a dev container: one kernel counts aloud once a second, the websocket of another one is silent all
the time and asked at the end. What is lost, doubled or closed is an error; memory of the server is shown every minute.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import psutil

from hai.client.container_spec import Wish, container_spec
from tests.e2e.reaching import browser, origin_of, reach, signed_in


async def main(hours: float) -> None:
    with TemporaryDirectory(prefix="hai-soak-") as directory:
        async with reach(Path(directory)) as here, browser() as web:
            task = await here.client.tasks.create(await container_spec(here.client, Wish("soak")))
            url = await signed_in(web, here.client, task.id)
            await here.ready(task.id, "jupyter")
            await _soak(web, url, int(hours * 3600))


async def _soak(web: aiohttp.ClientSession, url: str, seconds: int) -> None:
    async with web.get(f"{url}lab") as page:
        await page.read()
    xsrf = next(c.value for c in web.cookie_jar if c.key == "_xsrf")
    headers = {"X-XSRFToken": xsrf, "Origin": origin_of(url)}
    busy, silent = [await _kernel(web, url, headers) for _ in range(2)]
    code = f"import time\nfor i in range({seconds}):\n    print(i, flush=True)\n    time.sleep(1)"
    await busy.send_json(_execute(code))
    quiet = asyncio.ensure_future(_printed(silent))  # pings are answered by who listens
    began, seen = time.monotonic(), 0
    while seen < seconds:
        for word in (await _printed(busy)).split():
            assert int(word) == seen, f"{word} came, not {seen}"
            seen += 1
            if seen % 60 == 0:
                memory = psutil.Process().memory_info().rss / 2**20
                print(
                    f"{time.monotonic() - began:7.0f} s: {seen} lines, {memory:.0f} MiB", flush=True
                )
    await silent.send_json(_execute("print('still here')"))
    assert await quiet == "still here\n"
    print(f"both websockets lived for {time.monotonic() - began:.0f} s; nothing was lost")


async def _kernel(
    web: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> aiohttp.ClientWebSocketResponse:
    async with web.post(f"{url}api/kernels", json={"name": "python3"}, headers=headers) as made:
        kernel = (await made.json())["id"]
    channels = f"{url.replace('http:', 'ws:')}api/kernels/{kernel}/channels"
    return await web.ws_connect(channels, headers={"Origin": headers["Origin"]}, max_msg_size=0)


def _execute(code: str) -> dict[str, Any]:
    header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "version": "5.3"}
    return {
        "header": {**header, "username": "", "date": ""},
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False, "store_history": False, "user_expressions": {}},
        "channel": "shell",
        "buffers": [],
    }


async def _printed(socket: aiohttp.ClientWebSocketResponse) -> str:
    async for message in socket:
        said = json.loads(message.data)
        if said["header"]["msg_type"] == "stream":
            return str(said["content"]["text"])
    raise AssertionError(f"the websocket was closed: {socket.close_code}")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))

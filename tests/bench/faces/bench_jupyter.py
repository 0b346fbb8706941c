"""The JupyterLab panel with 10 000 tasks: size, streams, and how long the user of a real browser waits."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hai.client.client import Client
from hai.v1.node_pb2 import Node
from hai.v1.task_pb2 import TASK_STATE_RUNNING, Task
from hai_jupyter.live.state_store import StateStore
from tests.bench.figures import Figure, percentile
from tests.bench.scheduler.filling import fill
from tests.jupyter.lab import start_lab, write_profile
from tests.support.servers import ServerProcess

BUILT = Path(__file__).parents[3] / "jupyter_ext" / "hai_jupyter" / "labextension"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
TASKS = 10_000
SEEN = """
window.seen = {};
new MutationObserver(() => {
  const here = query => document.querySelector(query) !== null;
  if (here('.jp-LabShell') && !here('#jupyterlab-splash')) window.seen.lab ||= performance.now();
  if (here('.hai-row')) window.seen.panel ||= performance.now();
  for (const mark of document.querySelectorAll('.hai-row .hai-tone-off')) {
    window.seen[mark.closest('.hai-row').dataset.task] ||= Date.now();
  }
}).observe(document, {childList: true, subtree: true, attributes: true});
"""
SCROLL = """
async list => {
  for (let i = 0; i < 200; i += 1) {
    list.scrollTop += 400;
    await new Promise(requestAnimationFrame);
  }
}
"""


def figures() -> Iterator[Figure]:
    yield from _built()
    yield from _board()
    if Path(CHROMIUM).exists():
        with tempfile.TemporaryDirectory(prefix="hai-bench-") as directory:
            (home := Path(directory) / "hai").mkdir()
            fill(home, TASKS)
            yield from asyncio.run(_browser(home.parent))


def _built() -> Iterator[Figure]:
    scripts = {p.name: len(gzip.compress(p.read_bytes())) for p in BUILT.glob("static/*.js")}
    lazy = ("logs.", "charts.", "zh.")
    first = sum(size for name, size in scripts.items() if not name.startswith(lazy))
    yield Figure("JupyterLab panel, gzip", sum(scripts.values()) / 1000, "kB", 1000)
    yield Figure("JupyterLab panel without lazy chunks, gzip", first / 1000, "kB")


def _board() -> Iterator[Figure]:
    """Yield the CPU time of 50 pages that load 10 000 tasks, and of one change that is sent to all of them."""
    asyncio.run(_fifty([]))
    times: list[float] = []
    asyncio.run(_fifty(times))
    yield Figure("50 pages open on 10 000 tasks, CPU", times[0], "s")
    yield Figure("one change told to 50 pages, CPU", times[1] * 1000, "ms", 5)


async def _fifty(times: list[float]) -> None:
    board = StateStore(TASKS)
    board.put_tasks([_task(i) for i in range(1, TASKS + 1)], TASKS)
    board.put_nodes([Node(name=f"n{i}", group="default") for i in range(100)])
    managers = [board.page() for _ in range(50)]
    pages = [manager.__enter__() for manager in managers]
    began = time.process_time()
    for page in pages:
        for _ in range(TASKS // 500):
            await page.next()
    times.append(time.process_time() - began)
    began = time.process_time()
    board.put_tasks([_task(5, TASKS + 1)], TASKS + 1)
    for page in pages:
        await page.next()
    times.append(time.process_time() - began)
    for manager in managers:
        manager.__exit__(None, None, None)


def _task(id: int, version: int = 0) -> Task:
    return Task(id=id, name=f"t{id}", user="u", version=version or id, state=TASK_STATE_RUNNING)


async def _browser(home: Path) -> list[Figure]:
    from playwright.async_api import async_playwright

    server = ServerProcess(home / "hai", "--nodes", "0")
    profile = server.start()
    write_profile(home / "config.toml", profile)
    lab = start_lab(home, home / "config.toml")
    try:
        async with async_playwright() as playwright, Client(profile) as client:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = await browser.new_page(viewport={"width": 1280, "height": 800})
            await page.goto(f"{lab.url}api/status?token={lab.token}")
            found = await _use(page, lab.url, client)
            await browser.close()
            return found
    finally:
        lab.end()
        server.end()
        server.sweep()


async def _use(page: Any, url: str, client: Client) -> list[Figure]:
    await page.goto(f"{url}lab/workspaces/bench")
    await page.locator('[data-id="hai-panel"]').click()
    await page.locator(".hai-quick button").last.click()
    await page.locator(".hai-row").first.wait_for()
    # JupyterLab saves its layout, and the panel its filter, with some delay.
    await page.wait_for_timeout(3000)
    await page.add_init_script(SEEN)
    opens = []
    for _ in range(3):
        await page.goto(f"{url}lab/workspaces/bench")
        await page.locator(".hai-row").first.wait_for()
        seen = await page.evaluate("window.seen")
        opens.append(max(0.0, seen["panel"] - seen["lab"]) / 1000)
    await page.locator(".hai-count", has_text=str(TASKS)).wait_for()
    shown = [await _shown(page, client, TASKS - i) for i in range(15)]
    frame = await _frame(page)
    return [
        Figure("panel shows tasks after Lab is ready (10 000 tasks)", sorted(opens)[1], "s", 1),
        Figure("a change is shown in the browser, p50", percentile(shown, 50), "ms", 500),
        Figure("a change is shown in the browser, p95", percentile(shown, 95), "ms", 500),
        Figure("CPU of a frame, 10 000 tasks scrolled by 400 px a frame", frame, "ms", 16),
    ]


async def _frame(page: Any) -> float:
    """Return the CPU milliseconds per frame of the page's main thread: script, layout, paint."""
    chrome = await page.context.new_cdp_session(page)
    await chrome.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = await _busy(chrome)
    await page.locator(".hai-list").evaluate(SCROLL)
    return (await _busy(chrome) - before) * 1000 / 200


async def _busy(chrome: Any) -> float:
    metrics = (await chrome.send("Performance.getMetrics"))["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


async def _shown(page: Any, client: Client, id: int) -> float:
    """Return the milliseconds from the stop request until the row shows that the task is canceled."""
    began = time.time()
    await client.tasks.stop(id)
    await page.locator(f'.hai-row[data-task="{id}"] .hai-tone-off').wait_for()
    at = await page.evaluate(f"window.seen[{id}]")
    return float(at - began * 1000)

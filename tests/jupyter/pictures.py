"""`python -m tests.jupyter.pictures` draws the pictures of docs/jupyter.md. Look at them afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.async_api import Page, async_playwright

from hai.client.client import Client
from hai.client.tasks.container_spec import ContainerOptions, container_spec
from hai.v1.task_pb2 import Task
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.jupyter.browsing import CHROMIUM, FLAGS, open_file, open_lab, row
from tests.jupyter.conftest import JupyterSetup, start_setup

NB: Any = nbformat
DOCS = Path(__file__).parents[2] / "docs"
SIZE = {"width": 1120, "height": 640}
TRAIN = """
import time, hai
for step in range(2000):
    print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
    time.sleep(0.2)
    if hai.receive_suspend_command():
        hai.go_suspend()
"""


async def main() -> None:
    with setup() as here:
        write_files(here.root)
        async with Client(here.profile) as client, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = await browser.new_page(viewport=SIZE)
            await page.goto(f"{here.lab.url}api/status?token={here.lab.token}")
            await play(page, here, client)
            await browser.close()


@contextmanager
def setup() -> Iterator[JupyterSetup]:
    with tempfile.TemporaryDirectory(prefix="hai-pictures-") as home:
        yield from start_setup(Path(home), lab=True, nodes=4)


def write_files(root: Path) -> None:
    (root / "train.py").write_text(TRAIN)
    cells = [
        NB.v4.new_code_cell("rate = 0.1\nepochs = 3", metadata={"tags": ["parameters"]}),
        NB.v4.new_code_cell("%load_ext hai_jupyter\n%hai_status train.py"),
        NB.v4.new_code_cell("for epoch in range(epochs):\n    print(epoch, rate ** epoch)"),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NB.write(NB.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), root / "study.ipynb")


async def task(client: Client, setup: JupyterSetup, name: str, nodes: int, priority: int) -> Task:
    program = ProgramSpec(entrypoint="train.py", workspace=str(setup.root))
    resource = ResourceSpec(node_count=nodes)
    spec = TaskSpec(version=2, name=name, priority=priority, spec=program, resource=resource)
    return await client.tasks.create(spec)


async def play(page: Page, setup: JupyterSetup, client: Client) -> None:
    failing = TaskSpec(
        version=2,
        name="broken.sh",
        spec=ProgramSpec(entrypoint="sh", parameters=["-c", "exit 3"], entrypoint_executable=True),
        resource=ResourceSpec(node_count=1),
    )
    done = await client.tasks.create(failing)
    await client.tasks.wait(done.id, timeout=60)
    first = await task(client, setup, "train.py", 2, 10)
    await task(client, setup, "sweep-1", 2, 10)
    waiting = await task(client, setup, "sweep-2", 4, 10)
    await client.tasks.wait(first.id, until="running", timeout=60)
    await open_lab(page, setup)
    await open_file(page, "study.ipynb")
    await page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    await page.wait_for_timeout(4000)  # the kernel accepts code a little after it is shown as idle
    await page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(1).click()
    await page.keyboard.press("Control+Enter")
    await page.locator(".hai-live .hai-card").wait_for()
    await page.wait_for_timeout(1500)
    await shoot(page, "panel")
    await page.locator(".hai-panel .hai-primary").click()
    await page.locator(".hai-outcome", has_text="would").wait_for()
    await shoot(page, "submit")
    await page.locator(".hai-form-foot .hai-button").first.click()
    await row(page, "train.py").locator(".hai-name").click()
    await page.locator(".hai-page").get_by_role("tab", name="Logs").click()
    await page.locator(".hai-line").nth(20).wait_for()
    await shoot(page, "logs")
    await page.locator(".hai-page").get_by_role("tab", name="Charts").click()
    await page.locator(".hai-usage figure").nth(5).wait_for()
    await shoot(page, "charts")
    await row(page, "sweep-2").locator(".hai-name").click()
    await page.locator(".hai-why-card").wait_for()
    await page.wait_for_timeout(1000)
    await shoot(page, "why")
    for name in ("sweep-1", "sweep-2", "train.py"):
        await row(page, name).click(modifiers=["Control"])
    await page.locator(".hai-batch").wait_for()
    await shoot(page, "batch")
    await page.locator(".hai-batch").get_by_role("button", name="Unmark").click()
    for id in (first.id, waiting.id):
        await client.tasks.stop(id)
    lab = await client.tasks.create(
        await container_spec(client.nodes, ContainerOptions("lab", lifetime=43200))
    )
    await page.get_by_role("tab", name="Containers").click()
    await page.locator(".hai-service", has_text="ready").wait_for()
    await shoot(page, "containers")
    await client.containers.delete(lab.id)


async def shoot(page: Page, name: str) -> None:
    await page.screenshot(path=DOCS / f"jupyter-{name}.png")


if __name__ == "__main__":
    asyncio.run(main())

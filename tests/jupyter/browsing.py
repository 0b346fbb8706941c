"""Helpers of browser tests: the path of Debian's chromium, and a user's actions in JupyterLab and the panel."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.async_api import Locator, Page, expect
from playwright.async_api import TimeoutError as PlaywrightTimeout

from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.jupyter.conftest import JupyterSetup

NB: Any = nbformat
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
EVIL = "<img src=x onerror='window.hacked=1'>"
READABLE = """async () => {
    const asked = ['hai_jupyter/me', 'hai_jupyter/state', 'api/status', 'lab/api/settings'];
    const told = await Promise.all(asked.map(async path => (await fetch('/' + path)).text()));
    const kept = JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage });
    return [document.cookie, document.documentElement.outerHTML, location.href, kept, ...told].join();
}"""
"""All that a page of a container can read of where it is."""

expect.set_options(timeout=30_000)

BROWSER = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"{CHROMIUM} is not installed"),
    pytest.mark.skipif(not shutil.which("node"), reason="without node the panel is not built"),
    pytest.mark.xdist_group("browser"),
]
"""Marks of each file of such tests: one browser, one JupyterLab and one platform for all of them."""


async def open_lab(page: Page, lab: JupyterSetup, path: str = "") -> None:
    await page.goto(f"{lab.lab.url}lab/workspaces/w{time.monotonic_ns()}{path}")
    await page.locator("#jp-main-dock-panel").wait_for()
    await page.locator('[data-id="hai-panel"]').click()
    await page.locator(".hai-body").wait_for()


async def open_file(page: Page, name: str) -> None:
    await page.locator('.jp-SideBar [data-id="filebrowser"]').click()
    await page.locator(".jp-DirListing-item", has_text=name).dblclick()
    await page.locator('[data-id="hai-panel"]').click()


async def submit(page: Page) -> None:
    await page.locator(".hai-panel .hai-primary").click()
    button = page.get_by_role("button", name="Submit task")
    await expect(button).to_be_enabled()
    await button.click()


async def from_menu(page: Page, item: Locator, label: str) -> None:
    """Choose an entry of a file's menu. The file must be selected first, because JupyterLab may still select one that
    was just opened.
    """
    await item.click(button="right")
    await expect(item).to_have_class(re.compile("jp-mod-selected"))
    await page.locator(".lm-Menu-itemLabel", has_text=label).click()


async def execute(page: Page, shown: Locator) -> None:
    """Run the first cell until `shown` appears. JupyterLab reports an idle kernel a little before it accepts code."""
    await page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for()
    for _ in range(20):
        with suppress(PlaywrightTimeout):
            await page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click(timeout=4_000)
            await page.keyboard.press("Control+Enter")
            await shown.wait_for(timeout=4_000)
            return
    dialogs = await page.locator(".jp-Dialog").all_inner_texts()
    raise AssertionError(f"the cell shows nothing; dialogs over it: {dialogs}")


def notebook(*cells: Any) -> Any:
    """Return a notebook that names a kernel, so that JupyterLab does not ask for one."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return NB.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def row(page: Page, name: str) -> Locator:
    return page.locator(".hai-row", has_text=name).first


def task(name: str, text: str, nodes: int = 1) -> TaskSpec:
    """Return the spec of a task that runs a shell command."""
    program = ProgramSpec(entrypoint="sh", parameters=["-c", text], entrypoint_executable=True)
    return TaskSpec(version=2, name=name, spec=program, resource=ResourceSpec(node_count=nodes))

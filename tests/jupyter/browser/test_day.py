"""A user submits, watches, suspends, resumes and reads a notebook; the platform stops and returns."""

from __future__ import annotations

import asyncio

from playwright.async_api import Page, expect

from hai.client.client import Client
from tests.jupyter.browsing import BROWSER, NB, notebook, open_file, row, submit, task
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER
STEPS = """
import time, hai
for i in range(600):
    print("step", i, flush=True)
    time.sleep(0.05)
    if hai.receive_suspend_command():
        print("saved at", i, flush=True)
        hai.go_suspend()
"""


async def test_a_notebook_is_submitted_watched_suspended_resumed_and_read(
    page: Page, lab: JupyterSetup
) -> None:
    cells = [NB.v4.new_code_cell("print('begin')"), NB.v4.new_code_cell(STEPS)]
    NB.write(notebook(*cells), lab.root / "day.ipynb")
    await open_file(page, "day.ipynb")
    await submit(page)
    mine = row(page, "day.ipynb")
    await expect(mine).to_contain_text("RUNNING")
    await mine.locator(".hai-name").click()
    await page.locator(".hai-page").get_by_role("tab", name="Logs").click()
    log = page.locator(".hai-log")
    await expect(log).to_contain_text("step 3")
    await page.locator(".hai-page-head").get_by_role("button", name="Suspend").click()
    await expect(mine).to_contain_text("HELD")
    await page.locator(".hai-page-head").get_by_role("button", name="Resume").click()
    await expect(mine).to_contain_text("RUNNING")
    await expect(page.locator(".hai-page-head")).to_contain_text("run 2")
    await expect(log).to_contain_text("an earlier run was suspended after 1 cells")
    await page.locator(".hai-page-head").get_by_role("button", name="Stop").click()
    await page.locator(".jp-Dialog .jp-mod-accept").click()
    await expect(mine).to_contain_text("STOPPED")
    await expect(page.locator(".hai-log-state")).to_have_text("complete")


async def test_a_log_is_shown_to_its_last_line(page: Page, client: Client) -> None:
    made = await client.tasks.create(task("long log", "seq 1 20000; echo the end"))
    await client.tasks.wait(made.id, timeout=60)
    await row(page, "long log").locator(".hai-name").click()
    await page.locator(".hai-page").get_by_role("tab", name="Logs").click()
    await expect(page.locator(".hai-log")).to_contain_text("the end")
    assert await page.locator(".hai-line").count() < 200  # the log draws only visible lines
    await page.locator(".hai-log").evaluate("e => { e.scrollTop = 0 }")
    await expect(page.locator(".hai-line").first).to_have_text("1")


async def test_a_rank_leads_to_its_own_lines(page: Page, client: Client) -> None:
    made = await client.tasks.create(task("two ranks", "echo I am rank $RANK; sleep 600", nodes=2))
    await client.tasks.wait(made.id, until="running", timeout=60)
    await row(page, "two ranks").locator(".hai-name").click()
    await page.locator(".hai-table tr", has_text="node").nth(1).get_by_role("button").click()
    await expect(page.locator(".hai-log")).to_contain_text("I am rank 1")
    await expect(page.locator(".hai-log")).not_to_contain_text("I am rank 0")
    await client.tasks.stop(made.id)
    await client.tasks.wait(made.id, timeout=60)


async def test_charts_show_what_ranks_use(page: Page, client: Client) -> None:
    made = await client.tasks.create(task("uses much", "exec sleep 120", nodes=2))
    await client.tasks.wait(made.id, until="running", timeout=60)
    for _ in range(100):  # agents report usage every few seconds
        if len((await client.usage.of_task(made.id)).ranks) == 2:
            break
        await asyncio.sleep(0.5)
    await row(page, "uses much").locator(".hai-name").click()
    await page.locator(".hai-page").get_by_role("tab", name="Charts").click()
    chart = page.locator(".hai-usage")
    for title in ("all ranks together", "rank 0, run 1", "rank 1, run 1"):
        await expect(chart.get_by_role("heading", name=title)).to_be_visible()
    await expect(chart.locator("figcaption", has_text="Memory")).to_have_count(3)
    area = chart.get_by_role("img", name="Memory").first
    assert await area.locator("rect").count() > 0
    box = await area.bounding_box()
    assert box is not None
    assert box["width"] > 300
    await client.tasks.stop(made.id)
    await client.tasks.wait(made.id, timeout=60)


async def test_the_platform_goes_and_comes_back(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    await expect(page.locator(".hai-dot-good")).to_be_visible()
    lab.server.end()
    await expect(page.locator(".hai-header .hai-failed")).to_contain_text("cannot reach the server")
    await expect(page.locator(".hai-header")).to_contain_text("What is shown is old.")
    assert await page.locator(".hai-row").count() > 0
    lab.server.start("--port", lab.profile.server.rpartition(":")[2])
    await expect(page.locator(".hai-dot-good")).to_be_visible()
    made = await client.tasks.create(task("after the return", "true"))
    await expect(row(page, "after the return")).to_be_visible()
    await client.tasks.wait(made.id, timeout=60)


async def test_the_panel_is_usable_at_320_pixels(page: Page, client: Client) -> None:
    made = await client.tasks.create(
        task("a name that is much longer than the panel is wide", "true")
    )
    await client.tasks.wait(made.id, timeout=60)
    await page.set_viewport_size({"width": 640, "height": 700})
    await page.locator("#jp-left-stack").evaluate("e => { e.style.width = '320px' }")
    await expect(row(page, "a name that")).to_be_visible()
    wider = "e => [...e.querySelectorAll('*')].filter(x => x.getBoundingClientRect().right >"
    wider += " e.getBoundingClientRect().right + 1).map(x => x.className)"
    for tab in ("Tasks", "Cluster", "Quotas", "Envs", "Workspaces", "Messages"):
        await page.locator(".hai-panel").get_by_role("tab", name=tab).click()
        assert await page.locator(".hai-panel").evaluate(wider) == []

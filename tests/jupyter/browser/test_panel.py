"""The panel: scripts load on demand, actions on several tasks, notebooks as scripts, the text of a report."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

from playwright.async_api import Page, WebSocketRoute, expect

from hai.client.client import Client
from tests.jupyter.browsing import BROWSER, NB, from_menu, notebook, open_file, open_lab, row, task
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER
LOADED = "performance.getEntriesByType('resource').map(e => e.name).filter(n => n.includes('hai-jupyter'))"


async def loaded(page: Page) -> set[str]:
    """Return the first word of the name of each script of the extension that the page has loaded."""
    names = await page.evaluate(LOADED)
    return {Path(name).name.partition(".")[0] for name in names if ".js" in name}


async def test_logs_and_charts_are_loaded_when_they_are_looked_at(
    page: Page, client: Client
) -> None:
    made = await client.tasks.create(task("lazy", "echo hello"))
    await client.tasks.wait(made.id, timeout=60)
    await row(page, "lazy").locator(".hai-name").click()
    await expect(page.locator(".hai-page h2")).to_contain_text("lazy")
    assert await loaded(page) & {"logs", "charts", "zh"} == set()
    await page.locator(".hai-page").get_by_role("tab", name="Logs").click()
    await expect(page.locator(".hai-log")).to_contain_text("hello")
    assert await loaded(page) & {"logs", "charts", "zh"} == {"logs"}
    await page.locator(".hai-page").get_by_role("tab", name="Charts").click()
    await expect(page.locator(".hai-life").first).to_be_visible()
    assert await loaded(page) & {"logs", "charts", "zh"} == {"logs", "charts"}


async def test_a_log_that_cannot_be_had_is_asked_for_ever_more_seldom(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    asked: list[float] = []
    enough = asyncio.Event()

    async def refuse(route: WebSocketRoute) -> None:
        asked.append(time.monotonic())
        route.send('{"error": {"message": "no server answers"}}')
        await route.close()
        if len(asked) == 5:
            enough.set()

    await page.route_web_socket(re.compile(r"/log\?"), refuse)
    await open_lab(page, lab)
    made = await client.tasks.create(task("refused", "sleep 300"))
    await row(page, "refused").locator(".hai-name").click()
    await page.locator(".hai-page").get_by_role("tab", name="Logs").click()
    await asyncio.wait_for(enough.wait(), 60)
    assert asked[4] - asked[3] > 1.5  # seconds; the pause starts at 0.25 and doubles
    await client.tasks.stop(made.id)


async def test_who_is_not_let_in_reads_why_and_no_numbers(page: Page, lab: JupyterSetup) -> None:
    """The platform refuses the token, so the panel does not know how many tasks there are."""
    link = {"up": False, "reason": "TOKEN_EXPIRED", "message": "the token has expired"}
    frame = {"board": "b", "version": 0, "tasks": [], "nodes": [], "link": link, "reset": True}

    await page.route_web_socket(
        re.compile(r"hai_jupyter/events"), lambda route: route.send(json.dumps(frame))
    )
    await open_lab(page, lab)
    header = page.locator(".hai-header")
    await expect(header).to_contain_text("the token has expired")
    await expect(header).to_contain_text("Not connected")
    await expect(header).not_to_contain_text("nodes held")


async def test_the_timeline_says_of_which_run_and_rank(page: Page, client: Client) -> None:
    made = await client.tasks.create(task("in order", "true", nodes=2))
    await client.tasks.wait(made.id, timeout=60)
    await row(page, "in order").locator(".hai-name").click()
    await page.locator(".hai-page").get_by_role("tab", name="Timeline").click()
    events = page.locator(".hai-events")
    for event in ("RankAttached 1.0", "RankAttached 1.1", "RunPlaced 1", "RunStarted 1"):
        await expect(events.get_by_role("cell", name=event, exact=True)).to_be_visible()


async def test_several_tasks_are_tagged_and_stopped_at_once(page: Page, client: Client) -> None:
    ended = await client.tasks.create(task("batch-0", "true"))
    await client.tasks.wait(ended.id, timeout=60)
    made = [await client.tasks.create(task(f"batch-{i}", "sleep 300")) for i in (1, 2, 3)]
    await page.get_by_role("searchbox", name="Filter").fill("name:batch-*")
    await expect(page.locator(".hai-row")).to_have_count(4)
    await page.locator(".hai-row").first.click()
    await page.locator(".hai-row").last.click(modifiers=["Shift"])
    bar = page.get_by_role("toolbar", name="Marked tasks")
    await expect(bar).to_contain_text("4 marked")
    await bar.get_by_label("Tags to add").fill("sweep x-1")
    await bar.get_by_role("button", name="Tag", exact=True).click()
    await expect(bar.get_by_role("status")).to_contain_text("4 done, 0 refused")
    assert set((await client.tasks.get(ended.id)).tags) == {"sweep", "x-1"}
    await page.locator(".hai-row", has_text="batch-1").click(modifiers=["Control"])
    await expect(bar).to_contain_text("3 marked")
    await bar.get_by_role("button", name="Stop 2").click()
    await page.locator(".jp-Dialog .jp-mod-accept").click()
    await expect(bar.get_by_role("status")).to_contain_text("2 done, 0 refused")
    for each in made[1:]:
        await client.tasks.wait(each.id, timeout=60)
    await expect(row(page, "batch-1")).to_contain_text("RUNNING")
    await client.tasks.stop(made[0].id)
    await client.tasks.wait(made[0].id, timeout=60)


async def test_refusals_of_a_batch_are_told_one_by_one(page: Page, client: Client) -> None:
    made = [await client.tasks.create(task(f"refused-{i}", "true")) for i in (1, 2)]
    for each in made:
        await client.tasks.wait(each.id, timeout=60)
    await page.get_by_role("searchbox", name="Filter").fill("name:refused-*")
    for each in made:
        await page.locator(f'.hai-row[data-task="{each.id}"]').click(modifiers=["Control"])
    bar = page.get_by_role("toolbar", name="Marked tasks")
    await bar.get_by_label("Tags to add").fill("x" * 500)
    await bar.get_by_role("button", name="Tag", exact=True).click()
    told = bar.get_by_role("status")
    await expect(told).to_contain_text("0 done, 2 refused")
    for each in made:
        await expect(told).to_contain_text(f"#{each.id} {each.name}:")


async def test_a_notebook_becomes_a_script_and_loses_its_outputs(
    page: Page, lab: JupyterSetup
) -> None:
    outputs = [NB.v4.new_output("stream", text="much " * 100)]
    cells = [NB.v4.new_code_cell("!ls\nprint(1)", outputs=outputs)]
    NB.write(notebook(*cells), lab.root / "turn.ipynb")
    await open_file(page, "turn.ipynb")
    await page.locator('.jp-SideBar [data-id="filebrowser"]').click()
    item = page.locator(".jp-DirListing-item", has_text="turn.ipynb")
    await from_menu(page, item, "Notebook to Script")
    await expect(page.locator(".jp-Dialog")).to_contain_text("1:1  !ls")
    await page.locator(".jp-Dialog").get_by_role("button", name="As comments").click()
    editor = page.locator(".jp-FileEditor .cm-content")
    await expect(editor).to_contain_text("pass  # !ls")
    assert "print(1)" in (lab.root / "turn.py").read_text()
    await expect(page.locator(".jp-DirListing-item", has_text="turn.py")).to_be_visible()
    await from_menu(page, item, "Clear Outputs, Keep")
    await expect(page.locator(".Toastify")).to_contain_text("as it was it is turn.")
    assert NB.read(lab.root / "turn.ipynb", 4).cells[0].outputs == []
    await page.locator(".lm-TabBar-tabLabel", has_text="turn.ipynb").click()
    await expect(page.locator(".jp-Notebook .jp-OutputArea-output")).to_have_count(0)


async def test_diagnostics_have_what_helps_and_no_token(page: Page, lab: JupyterSetup) -> None:
    await expect(page.locator(".hai-dot-good")).to_be_visible()
    palette = page.locator(".lm-CommandPalette-input")
    await page.locator("#jp-top-panel").click(position={"x": 2, "y": 2})  # a busy page loses a key
    await page.keyboard.press("Control+Shift+c")
    await expect(palette).to_be_visible()
    await palette.fill("HAI: Diagnostics")
    await page.keyboard.press("Enter")
    dialog = page.locator(".jp-Dialog")
    await expect(dialog).to_contain_text("platform answers; feed live")
    text = await dialog.inner_text()
    assert "panel ?" not in text
    assert lab.profile.token not in text
    assert lab.lab.token not in text
    await dialog.get_by_role("button", name="Cancel").click()


async def test_a_large_notebook_says_that_it_is_slow(page: Page, lab: JupyterSetup) -> None:
    outputs = [NB.v4.new_output("stream", text="x" * 6_000_000)]
    NB.write(notebook(NB.v4.new_code_cell("1", outputs=outputs)), lab.root / "large.ipynb")
    await open_file(page, "large.ipynb")
    toast = page.locator(".Toastify", has_text="large.ipynb has 5.7")
    await toast.get_by_role("button", name="Clear outputs").click()
    await expect(page.locator(".Toastify")).to_contain_text("as it was it is large.")
    assert (lab.root / "large.ipynb").stat().st_size < 5_000


async def test_a_page_with_an_old_panel_asks_to_be_loaded_again(
    page: Page, lab: JupyterSetup
) -> None:
    routes: list[WebSocketRoute] = []

    def through(route: WebSocketRoute) -> None:
        route.connect_to_server()
        routes.append(route)

    await page.route_web_socket(re.compile("hai_jupyter/events"), through)
    await open_lab(page, lab)
    await expect(page.locator(".hai-dot-good")).to_be_visible()
    told = page.locator(".Toastify", has_text="was renewed on the server")
    await expect(told).to_have_count(0)
    routes[-1].send('{"tasks": [], "nodes": [], "version": 0, "build": "another"}')
    await expect(told.get_by_role("button", name="Reload")).to_be_visible()


async def test_who_looks_into_the_container_of_somebody_else_is_told_so(
    page: Page, lab: JupyterSetup
) -> None:
    """The platform's proxy names the visitor in a header."""
    await expect(page.get_by_role("note")).to_have_count(0)
    await page.set_extra_http_headers({"X-Hai-User": "bob"})
    await open_lab(page, lab)
    await expect(page.get_by_role("note")).to_contain_text("What you do in it, you do as")


async def test_tasks_of_a_sweep_are_told_apart_in_a_narrow_panel(
    page: Page, client: Client
) -> None:
    """The names of such tasks differ at their end, so a narrow panel must show the end."""
    made = await client.tasks.create(task("train_a_model.py LR=0.001 SEED=1", "true"))
    await client.tasks.wait(made.id, timeout=60)
    end = row(page, "LR=0.001 SEED=1").locator(".hai-name span").last
    await expect(end).to_have_text("0.001 SEED=1")
    seen, name = await end.bounding_box(), await row(page, "SEED=1").locator("a").bounding_box()
    assert seen
    assert name
    assert seen["x"] + seen["width"] <= name["x"] + name["width"]


async def test_what_has_ended_is_submitted_again_alone_or_several_at_once(
    page: Page, client: Client
) -> None:
    for name in ("falls 1", "falls 2"):
        made = await client.tasks.create(task(name, "exit 3"))
        await client.tasks.wait(made.id, timeout=60)
    await page.get_by_role("searchbox", name="Filter").fill("falls")
    await row(page, "falls 2").wait_for()
    await page.locator(".hai-list").press("Control+a")
    await page.locator(".hai-batch").get_by_role("button", name="Submit again 2").click()
    await expect(page.locator(".hai-batch")).to_contain_text("2 done, 0 refused")
    await client.tasks.wait_all([made.id + 1, made.id + 2], timeout=60)
    await row(page, "falls").locator(".hai-name").click()
    head = page.locator(".hai-page:visible .hai-page-head")
    await head.get_by_role("button", name="Submit again").click()
    await expect(head).to_contain_text(f"#{made.id + 3}")
    await client.tasks.wait(made.id + 3, timeout=60)

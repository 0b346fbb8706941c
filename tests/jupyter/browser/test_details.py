"""Drafts of forms, changes since the last submission, columns, following the chosen task, links, and help."""

from __future__ import annotations

import asyncio
import json

from playwright.async_api import Browser, Page, expect

from hai.client.client import Client
from tests.jupyter.browsing import (
    BROWSER,
    NB,
    execute,
    notebook,
    open_file,
    open_lab,
    row,
    submit,
    task,
)
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER
NO_EVENTS = """
const Real = window.WebSocket;
window.WebSocket = class extends Real {
    constructor(url, protocols) {
        super(String(url).includes('hai_jupyter/events') ? 'ws://127.0.0.1:1/' : url, protocols ?? []);
    }
};
"""
SETTINGS = "lab/api/settings/hai-jupyter:plugin"


async def kept(page: Page, lab: JupyterSetup, word: str) -> None:
    """Wait until JupyterLab, which saves its state with a delay, has stored a word."""
    headers = {"Authorization": f"token {lab.lab.token}"}
    for _ in range(300):
        found = await page.request.get(f"{lab.lab.url}lab/api/workspaces", headers=headers)
        if word in await found.text():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{word} was not kept")


async def test_a_begun_form_survives_a_reload_and_is_there_in_another_browser(
    page: Page, browser: Browser, lab: JupyterSetup
) -> None:
    (lab.root / "begun.py").write_text("print(1)\n")
    await open_file(page, "begun.py")
    await page.locator(".hai-panel .hai-primary").click()
    form = page.locator(".hai-form")
    await form.get_by_label("Tags", exact=True).fill("kept-tag")
    await expect(form.locator(".hai-edited")).to_contain_text("Tags")
    await kept(page, lab, "kept-tag")
    other = await browser.new_page()
    await other.goto(f"{lab.lab.url}api/status?token={lab.lab.token}")
    for each in (page, other):
        await each.goto(page.url)
        await each.locator(".lm-TabBar-tab", has_text="begun.py").first.click()
        await each.keyboard.press("Control+Shift+y")
        again = each.locator(".hai-form")
        await expect(again.get_by_label("Tags", exact=True)).to_have_value("kept-tag")
    await again.get_by_role("button", name="Tags: As it was").click()
    await expect(again.get_by_label("Tags", exact=True)).to_have_value("")
    await other.close()


async def test_the_form_shows_what_has_changed_since_it_was_submitted(
    page: Page, lab: JupyterSetup
) -> None:
    file = lab.root / "differs.py"
    file.write_text("print('before')\n")
    await open_file(page, "differs.py")
    await submit(page)
    await expect(row(page, "differs.py")).to_contain_text("SUCCEEDED")
    await expect(page.locator(".Toastify")).to_contain_text("differs.py has succeeded")
    await page.locator(".jp-FileEditor:visible .cm-content").click()
    await page.keyboard.press("Control+End")
    await page.keyboard.type("print('after')\n")
    await page.locator(".hai-panel .hai-primary").click()
    await page.locator(".hai-form").get_by_role("tab", name="Changes").click()
    await expect(page.locator(".hai-diff .hai-added")).to_contain_text(["+print('after')"])
    await page.locator(".hai-form").get_by_role("button", name="Cancel").click()


async def test_rows_tell_what_was_chosen_for_them(page: Page, client: Client) -> None:
    made = await client.tasks.create(task("uses cpu", "while :; do :; done"))
    await client.tasks.wait(made.id, until="running", timeout=60)
    await page.get_by_role("button", name="Columns").click()
    await page.get_by_role("group", name="Columns").get_by_label("CPUs in use").check()
    await page.get_by_role("group", name="Columns").get_by_label("Number of runs").check()
    await page.get_by_role("button", name="Columns").click()
    await expect(row(page, "uses cpu")).to_contain_text("×1")
    for _ in range(100):  # agents report usage every ten seconds
        if (await client.usage.of_task(made.id, sum=True)).sum:
            break
        await asyncio.sleep(0.5)
    await expect(row(page, "uses cpu")).to_contain_text("CPU", timeout=60_000)
    await client.tasks.stop(made.id)
    await client.tasks.wait(made.id, timeout=60)


async def test_the_log_of_the_chosen_task_is_shown_where_that_is_wanted(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    for name in ("first of two", "second of two"):
        made = await client.tasks.create(task(name, f"echo this is the {name}"))
        await client.tasks.wait(made.id, timeout=60)
    await row(page, "first of two").click()
    await expect(page.locator(".hai-page")).to_have_count(0)
    headers = {"Authorization": f"token {lab.lab.token}"}
    raw = json.dumps({"raw": json.dumps({"followSelection": True})})
    answer = await page.request.put(f"{lab.lab.url}{SETTINGS}", data=raw, headers=headers)
    assert answer.ok
    await open_lab(page, lab)
    await page.request.put(f"{lab.lab.url}{SETTINGS}", data='{"raw": "{}"}', headers=headers)
    for name in ("first of two", "second of two"):
        await row(page, name).click()
        await expect(page.locator(".hai-log")).to_contain_text(f"this is the {name}")
    await expect(page.locator(".hai-page")).to_have_count(1)


async def test_links_open_a_file_and_a_task(page: Page, lab: JupyterSetup, client: Client) -> None:
    (lab.root / "linked.py").write_text("print('linked')\n")
    made = await client.tasks.create(task("linked task", "true"))
    await client.tasks.wait(made.id, timeout=60)
    await open_lab(page, lab, f"/tree/linked.py?hai-task={made.id}")
    await expect(page.locator(".hai-page h2")).to_contain_text("linked task")
    await expect(page.locator(".lm-TabBar-tab", has_text="linked.py")).to_be_visible()


async def test_what_there_is_is_listed_and_can_be_done_from_there(page: Page) -> None:
    await page.locator(".lm-MenuBar-item", has_text="HAI").click()
    await page.locator(".lm-Menu-item", has_text="What Is There").click()
    found = page.locator(".hai-help")
    await expect(found).to_contain_text("Ctrl Shift Y")
    await found.get_by_role("button", name="The cluster, node by node").click()
    await expect(page.locator(".hai-panel").get_by_role("tab", name="Cluster")).to_have_attribute(
        "aria-selected", "true"
    )


async def test_an_environment_is_made_in_a_terminal(page: Page, lab: JupyterSetup) -> None:
    await page.locator(".hai-panel").get_by_role("tab", name="Envs").click()
    await page.get_by_role("button", name="New environment …").click()
    form = page.locator(".hai-panel form")
    await form.get_by_label("Name").fill("from-lab")
    await form.get_by_label("Packages").fill("")
    await form.get_by_role("button", name="Create in a terminal").click()
    await expect(page.locator(".jp-Terminal")).to_be_visible()
    for _ in range(300):
        if [*(lab.home / "environments").glob("*/from-lab/env.toml")]:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the terminal made no environment")


async def test_nodes_of_a_task_are_checked_from_its_page(page: Page, client: Client) -> None:
    made = await client.tasks.create(task("on a bad node", "exit 3"))
    await client.tasks.wait(made.id, timeout=60)
    await row(page, "on a bad node").locator(".hai-name").click()
    await page.get_by_role("button", name="Check nodes …").click()
    await page.get_by_role("button", name="Check 1 nodes by a task").click()
    await expect(page.locator(".hai-page:visible h2")).to_contain_text("check of")
    await expect(page.locator(".hai-log")).to_contain_text('"healthy"', timeout=60_000)


async def test_a_magic_shows_a_task_that_goes_on_living(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    made = await client.tasks.create(task("lives on", "exec sleep 600"))
    cell = NB.v4.new_code_cell(f"%load_ext hai_jupyter\n%hai_status {made.id}")
    NB.write(notebook(cell), lab.root / "magic.ipynb")
    await open_file(page, "magic.ipynb")
    card = page.locator(".hai-live .hai-card")
    await execute(page, card)
    await expect(card).to_contain_text("RUNNING")
    await card.get_by_role("button", name="Stop").click()
    await page.locator(".jp-Dialog .jp-mod-accept").click()
    await expect(card).to_contain_text("STOPPED")
    await card.get_by_role("link", name="lives on").press("Enter")  # with the keyboard
    await expect(page.locator(".hai-page-head:visible h2")).to_contain_text("lives on")


async def test_where_no_websocket_gets_through_the_page_asks_again_and_again(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    await page.add_init_script(NO_EVENTS)
    await open_lab(page, lab)
    await expect(page.locator(".hai-cluster")).to_contain_text("(polling)")
    made = await client.tasks.create(task("seen by asking", "true"))
    await expect(row(page, "seen by asking")).to_contain_text("SUCCEEDED")
    await client.tasks.wait(made.id, timeout=60)

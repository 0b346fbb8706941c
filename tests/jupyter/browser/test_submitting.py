"""Submitting from the panel, and actions that happen once however many tabs are open."""

from __future__ import annotations

import json

from playwright.async_api import BrowserContext, Page, expect

from hai.client.client import Client
from tests.jupyter.browsing import BROWSER, open_file, open_lab, row
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER


async def test_two_tabs_with_one_file_submit_it_once(
    page: Page, session: BrowserContext, lab: JupyterSetup, client: Client
) -> None:
    (lab.root / "twice.py").write_text("print('once')\n")
    other = await session.new_page()
    await open_lab(other, lab)
    for each in (page, other):
        await open_file(each, "twice.py")
        await each.locator(".hai-panel .hai-primary").click()
        await expect(each.get_by_role("button", name="Submit task")).to_be_enabled()
    for each in (page, other):
        await each.get_by_role("button", name="Submit task").click()
        await expect(row(each, "twice.py")).to_be_visible()
    await other.close()
    found = await client.tasks.list(filter="name:twice.py")
    assert len(found.tasks) == 1


async def test_the_task_file_can_be_edited_before_it_is_submitted(
    page: Page, lab: JupyterSetup
) -> None:
    (lab.root / "edit.py").write_text("print('edited')\n")
    await open_file(page, "edit.py")
    await page.locator(".hai-panel .hai-primary").click()
    await expect(page.locator(".hai-outcome")).to_contain_text("would start")
    await page.locator(".hai-form").get_by_role("tab", name="Task file").click()
    editor = page.locator(".hai-editor .cm-content")
    await editor.click()
    await page.keyboard.press("Control+End")
    await page.keyboard.type("nonsense: 1\n")
    await expect(page.locator(".hai-form .hai-failed")).to_contain_text("nonsense")
    for _ in "nonsense: 1\n":
        await page.keyboard.press("Backspace")
    await expect(page.locator(".hai-outcome")).to_contain_text("would start")
    await page.get_by_role("button", name="Submit task").click()
    await expect(row(page, "edit.py")).to_be_visible()


TASK_FILE = """\
version: 2
name: as the file says
priority: 20
spec: {entrypoint: "true", entrypoint_executable: true}
resource: {node_count: 2}
options: {tags: [one, two]}
"""


async def test_a_task_file_is_submitted_as_it_is_but_for_what_the_form_changes(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    (lab.root / "job.yml").write_text(TASK_FILE)
    await open_file(page, "job.yml")
    await page.locator(".hai-panel .hai-primary").click()
    form = page.locator(".hai-form")
    await expect(form.get_by_label("Nodes")).to_have_value("2")
    await expect(form.locator(".hai-edited")).to_have_count(0)
    await form.get_by_label("Tags", exact=True).fill("")
    button = page.get_by_role("button", name="Submit task")
    await expect(button).to_be_enabled()
    await button.click()
    await expect(row(page, "as the file says")).to_be_visible()
    (made,) = (await client.tasks.list(filter='name:"as the file says"')).tasks
    assert (made.priority, made.node_count, [*made.tags]) == (20, 2, [])


async def speak(page: Page, lab: JupyterSetup, language: str) -> None:
    """Set the language of pages that open later."""
    settings = f"{lab.lab.url}lab/api/settings/hai-jupyter:plugin"
    headers = {"Authorization": f"token {lab.lab.token}"}
    raw = json.dumps({"raw": json.dumps({"language": language})})
    answer = await page.request.put(settings, data=raw, headers=headers)
    assert answer.ok


async def test_the_file_browser_submits_and_all_is_said_in_chinese(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    (lab.root / "menu.py").write_text("print(1)\n")
    await speak(page, lab, "zh")
    await open_lab(page, lab)
    await speak(page, lab, "auto")
    await expect(page.locator(".hai-panel").get_by_role("tab", name="任务")).to_be_visible()
    await page.locator('.jp-SideBar [data-id="filebrowser"]').click()
    await page.locator(".jp-DirListing-item", has_text="menu.py").click(button="right")
    await page.locator(".lm-Menu-itemLabel", has_text="作为任务提交").click()
    await page.get_by_role("button", name="提交任务").click()
    await expect(page.locator(".Toastify")).to_contain_text("已提交")
    found = (await client.tasks.list(filter="name:menu.py")).tasks
    await client.tasks.wait(found[0].id, timeout=60)

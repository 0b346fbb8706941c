"""Dev containers and workspaces in the panel, and a container that the platform will suspend."""

from __future__ import annotations

import json
import time
from pathlib import Path

from playwright.async_api import BrowserContext, Page, expect

from hai.client.client import Client
from tests.jupyter.browsing import BROWSER, READABLE, open_file
from tests.jupyter.conftest import JupyterSetup, sync_command

pytestmark = BROWSER


async def test_a_notice_saves_what_is_open(page: Page, lab: JupyterSetup) -> None:
    (lab.root / "unsaved.py").write_text("a = 1\n")
    await open_file(page, "unsaved.py")
    await page.locator(".jp-FileEditor .cm-content").click()
    await page.keyboard.type("b = 2  # not saved\n")
    now = time.time()
    facts = {
        "kind": "reclaim",
        "reason": "task 7 needs the node",
        "given_at": now,
        "ends_at": now + 60,
    }
    (lab.home / "notice.json").write_text(json.dumps(facts))
    await expect(page.locator(".hai-notice")).to_contain_text("task 7 needs the node")
    await expect(page.locator(".Toastify")).to_contain_text("1 documents were saved")
    assert "not saved" in (lab.root / "unsaved.py").read_text()
    (lab.home / "notice.json").unlink()
    await expect(page.locator(".hai-notice")).to_have_count(0)


async def test_a_dev_container_is_created_opened_and_put_away(
    page: Page, session: BrowserContext, lab: JupyterSetup
) -> None:
    await page.get_by_role("tab", name="Containers").click()
    await page.get_by_role("button", name="New container …").click()
    await page.locator(".hai-panel").get_by_label("Name").fill("bench")
    await page.get_by_role("button", name="Create").click()
    card = page.locator(".hai-container", has_text="bench")
    await expect(card.locator(".hai-service")).to_contain_text("ready")
    async with session.expect_page() as opening:
        await card.get_by_role("button", name="Open", exact=True).click()
    inside = await opening.value
    await inside.locator("#jp-main-dock-panel").wait_for()
    await expect(inside.locator('[data-id="hai-panel"]')).to_be_visible()
    secrets = [lab.profile.token, "hai_session"]
    seen = await inside.evaluate(READABLE)
    assert "jupyter" in seen.lower()
    assert [secret for secret in secrets if secret in seen] == []
    assert await inside.evaluate("window.opener") is None
    await inside.close()
    await card.get_by_role("button", name="Stop", exact=True).click()
    await expect(card.get_by_role("button", name="Start", exact=True)).to_be_visible()
    await card.get_by_role("button", name="Delete", exact=True).click()
    await page.locator(".jp-Dialog").get_by_role("button", name="Delete").click()
    await expect(card).to_have_count(0)


async def test_the_open_folder_is_pushed_from_the_panel(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    folder = lab.root / "project"
    folder.mkdir()
    (folder / "a.py").write_text("print(1)\n")
    sync_command(lab, folder, "init", "project")
    await page.locator('.jp-SideBar [data-id="filebrowser"]').click()
    await page.locator(".jp-DirListing-item", has_text="project").dblclick()
    await page.locator('[data-id="hai-panel"]').click()
    await page.get_by_role("tab", name="Workspaces").click()
    card = page.locator(".hai-folder")
    await expect(card).to_contain_text("1 to push, 0 to pull")
    await card.get_by_role("button", name="Push").click()
    await expect(card).to_contain_text("1 pushed")
    await expect(card).to_contain_text("in sync")
    there = Path((await client.workspaces.get("project")).path) / "a.py"
    there.write_text("theirs\n")
    (folder / "a.py").write_text("ours\n")
    await card.get_by_role("button", name="Pull").click()
    await expect(card.get_by_role("alert")).to_contain_text("a.py")
    assert (folder / "a.py").read_text() == "ours\n"

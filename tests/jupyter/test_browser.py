"""The panel in a real browser: Debian's chromium, a real JupyterLab, a real platform. One page plays a user's day."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

from hai.client.client import Client
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.jupyter.conftest import Place, start_place, sync_command

NB: Any = nbformat
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
EVIL = "<img src=x onerror='window.hacked=1'>"
STEPS = """
import time, hai
for i in range(600):
    print("step", i, flush=True)
    time.sleep(0.05)
    if hai.receive_suspend_command():
        print("saved at", i, flush=True)
        hai.go_suspend()
"""

READABLE = """async () => {
    const asked = ['hai_jupyter/me', 'hai_jupyter/state', 'api/status', 'lab/api/settings'];
    const told = await Promise.all(asked.map(async path => (await fetch('/' + path)).text()));
    const kept = JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage });
    return [document.cookie, document.documentElement.outerHTML, location.href, kept, ...told].join();
}"""
"""All that a page of a container can read of where it is."""

expect.set_options(timeout=30_000)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"{CHROMIUM} is not installed"),
    pytest.mark.skipif(not shutil.which("node"), reason="without node the panel is not built"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Two nodes, and JupyterLab."""
    home = tmp_path_factory.mktemp("browser")
    yield from start_place(home, lab=True, HAI_NOTICE_FILE=str(home / "notice.json"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(browser: Browser, lab: Place) -> AsyncIterator[BrowserContext]:
    """Logged in, as a user is after his first visit."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(30_000)
    page = await context.new_page()
    await page.goto(f"{lab.lab.url}api/status?token={lab.lab.token}")
    await page.close()
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(session: BrowserContext, lab: Place) -> AsyncIterator[Page]:
    """JupyterLab with the panel open; nothing may have gone wrong in it at the end."""
    page = await session.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    await open_lab(page, lab)
    yield page
    assert await page.evaluate("window.hacked") is None
    await page.close()
    assert problems == []


@pytest_asyncio.fixture(loop_scope="module")
async def client(lab: Place) -> AsyncIterator[Client]:
    async with Client(lab.profile) as client:
        yield client


async def open_lab(page: Page, lab: Place, path: str = "") -> None:
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


def row(page: Page, name: str) -> Locator:
    return page.locator(".hai-row", has_text=name).first


def task(name: str, text: str, nodes: int = 1) -> TaskSpec:
    """A shell one-liner."""
    program = ProgramSpec(entrypoint="sh", parameters=["-c", text], entrypoint_executable=True)
    return TaskSpec(version=2, name=name, spec=program, resource=ResourceSpec(node_count=nodes))


async def test_a_notebook_is_submitted_watched_suspended_resumed_and_read(
    page: Page, lab: Place
) -> None:
    cells = [NB.v4.new_code_cell("print('begin')"), NB.v4.new_code_cell(STEPS)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = NB.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    NB.write(made, lab.root / "day.ipynb")
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
    assert await page.locator(".hai-line").count() < 200  # only what is seen is drawn
    await page.locator(".hai-log").evaluate("e => { e.scrollTop = 0 }")
    await expect(page.locator(".hai-line").first).to_have_text("1")


async def test_names_and_lines_of_others_are_only_text(page: Page, client: Client) -> None:
    made = await client.tasks.create(task(f"evil {EVIL}", f'echo "{EVIL}"; exit 3'))
    await client.tasks.wait(made.id, timeout=60)
    await row(page, "evil").locator(".hai-name").click()
    await expect(page.locator(".hai-page h2")).to_contain_text(f"evil {EVIL}")
    await page.locator(".hai-page").get_by_role("tab", name="Logs").click()
    await expect(page.locator(".hai-log")).to_contain_text(EVIL)
    await page.locator(".hai-page").get_by_role("tab", name="Timeline").click()
    await page.locator(".hai-page").get_by_role("tab", name="Task file").click()
    assert await page.locator(".hai-page img, .hai-panel img").count() == 0


async def test_two_tabs_with_one_file_submit_it_once(
    page: Page, session: BrowserContext, lab: Place, client: Client
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
    page: Page, lab: Place, client: Client
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


async def test_a_notice_saves_what_is_open(page: Page, lab: Place) -> None:
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


async def test_the_platform_goes_and_comes_back(page: Page, lab: Place, client: Client) -> None:
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


async def test_a_dev_container_is_created_opened_and_put_away(
    page: Page, session: BrowserContext, lab: Place, client: Client
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
    page: Page, lab: Place, client: Client
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


async def test_the_file_browser_submits_and_all_is_said_in_chinese(
    page: Page, lab: Place, client: Client
) -> None:
    """The last one: from here on the panel is in Chinese."""
    (lab.root / "menu.py").write_text("print(1)\n")
    settings = f"{lab.lab.url}lab/api/settings/hai-jupyter:plugin"
    headers = {"Authorization": f"token {lab.lab.token}"}
    raw = json.dumps({"raw": json.dumps({"language": "zh"})})
    answer = await page.request.put(settings, data=raw, headers=headers)
    assert answer.ok
    await open_lab(page, lab)
    await expect(page.locator(".hai-panel").get_by_role("tab", name="任务")).to_be_visible()
    await page.locator('.jp-SideBar [data-id="filebrowser"]').click()
    await page.locator(".jp-DirListing-item", has_text="menu.py").click(button="right")
    await page.locator(".lm-Menu-itemLabel", has_text="作为任务提交").click()
    await page.get_by_role("button", name="提交任务").click()
    await expect(page.locator(".Toastify")).to_contain_text("已提交")
    found = (await client.tasks.list(filter="name:menu.py")).tasks
    await client.tasks.wait(found[0].id, timeout=60)

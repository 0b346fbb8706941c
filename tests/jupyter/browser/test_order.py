"""Tasks that wait for others: the panel shows and links the other tasks, and the form can choose them."""

from __future__ import annotations

import re

from playwright.async_api import Page, Request, expect

from hai.client.client import Client
from hai.v1.task_pb2 import Task
from tests.jupyter.browsing import BROWSER, open_file, row, task
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER


async def create(client: Client, name: str, *first: Task) -> Task:
    """Create a long task that starts after the end of the `first` ones."""
    spec = task(name, "exec sleep 600")
    for one in first:
        spec.options.after.add(task=one.id, outcome="ended")
    return await client.tasks.create(spec)


async def test_one_that_waits_leads_to_those_before_it_and_these_to_it(
    page: Page, client: Client
) -> None:
    first = await create(client, "goes before")
    second = await create(client, "comes behind", first)
    await expect(row(page, "comes behind")).to_contain_text(f"after #{first.id}")
    await row(page, "comes behind").locator(".hai-name").click()
    shown = page.locator(".hai-page:visible")
    await shown.get_by_role("list", name="Starts after").get_by_role("link").click()
    await expect(shown.locator("h2")).to_contain_text("goes before")
    behind = shown.get_by_role("list", name="Wait for its end")
    await expect(behind).to_contain_text(f"comes behind #{second.id} ○ WAITING")
    await shown.get_by_role("button", name="Stop").click()
    await expect(page.locator(".jp-Dialog")).to_contain_text("Tasks that wait for that: 1.")
    await page.keyboard.press("Escape")
    for one in (second, first):
        await client.tasks.stop(one.id)


async def test_of_several_the_newest_is_stopped_first(page: Page, client: Client) -> None:
    """The stop of an older task would start those that wait for it."""
    first = await create(client, "lane 1")
    others = [await create(client, f"lane {n}", first) for n in (2, 3)]
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.extend(re.findall(r"tasks/(\d+)/stop", request.url))

    page.on("request", note)
    for name in ("lane 1", "lane 2", "lane 3"):
        await row(page, name).click(modifiers=["Control"])
    await page.locator(".hai-batch").get_by_role("button", name="Stop").click()
    await expect(page.locator(".jp-Dialog")).not_to_contain_text("wait for that")
    await page.locator(".jp-Dialog .jp-mod-accept").click()
    await expect(page.locator(".hai-batch")).to_contain_text("3 done, 0 refused")
    assert asked == [str(one.id) for one in (*reversed(others), first)]
    told = page.locator(".Toastify__toast", has_text="was cancelled")
    await expect(told).to_have_count(1)
    await expect(told).to_contain_text("(+1)")


async def test_the_form_says_which_tasks_go_first_and_forgets_it_for_the_next_time(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    first = await create(client, "before the form")
    (lab.root / "behind.py").write_text("print('behind')\n")
    await open_file(page, "behind.py")
    await page.locator(".hai-panel .hai-primary").click()
    field = page.locator(".hai-form").get_by_role("combobox", name="After tasks")
    await expect(page.locator(f'#hai-after option[value="{first.id}"]')).to_have_count(1)
    await field.fill("nonsense")
    await expect(page.locator(".hai-form .hai-failed")).to_contain_text("options.after[0].task")
    await field.fill(f"{first.id}:ended")
    await expect(page.locator(".hai-outcome")).to_contain_text(f"Waits for task {first.id} to end.")
    await page.get_by_role("button", name="Submit task").click()
    await expect(row(page, "behind.py")).to_contain_text(f"after #{first.id}")
    await client.tasks.stop(first.id)
    await expect(row(page, "behind.py")).to_contain_text("SUCCEEDED")
    await page.locator(".hai-panel .hai-primary").click()
    await expect(field).to_have_value("")
    await page.locator(".hai-form").get_by_role("button", name="Cancel").click()

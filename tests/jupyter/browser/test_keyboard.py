"""The panel with keyboard and screen reader: focus stays where it was put, and the choice is announced."""

from __future__ import annotations

from playwright.async_api import Page, Route, expect

from hai.client.client import Client
from tests.jupyter.browsing import BROWSER, open_file, row, task
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER
INSIDE = "document.activeElement.closest('.hai-form') !== null"


async def test_the_tab_that_was_chosen_keeps_the_focus(page: Page) -> None:
    panel = page.locator(".hai-panel")
    for name in ("Cluster", "Envs", "Tasks"):
        tab = panel.get_by_role("tab", name=name)
        await tab.focus()
        await page.keyboard.press("Enter")
        await expect(tab).to_have_attribute("aria-selected", "true")
        await expect(tab).to_be_focused()


async def test_the_arrow_keys_go_from_tab_to_tab(page: Page) -> None:
    panel = page.locator(".hai-panel")
    await panel.get_by_role("tab", name="Tasks").focus()
    for key, name in (
        ("ArrowRight", "Containers"),
        ("ArrowLeft", "Tasks"),
        ("ArrowLeft", "Messages"),
    ):
        await page.keyboard.press(key)
        await expect(panel.get_by_role("tab", name=name)).to_be_focused()
        await expect(panel.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")


async def test_the_list_says_which_task_is_chosen(page: Page, client: Client) -> None:
    made = [await client.tasks.create(task(f"heard {i}", "true")) for i in range(2)]
    for each in made:
        await client.tasks.wait(each.id, timeout=60)
    await page.get_by_role("searchbox", name="Filter").fill("heard")
    await expect(page.locator(".hai-panel .hai-row")).to_have_count(2)
    await row(page, "heard 0").wait_for()
    tasks = page.get_by_role("listbox", name="Tasks")
    await tasks.focus()
    for key, chosen in (("ArrowDown", made[0]), ("ArrowUp", made[1])):
        await page.keyboard.press(key)
        element = page.locator(f".hai-row[data-task='{chosen.id}']")
        await expect(element).to_have_attribute("aria-selected", "true")
        known_as = await element.get_attribute("id")
        assert known_as
        await expect(tasks).to_have_attribute("aria-activedescendant", known_as)


async def test_a_click_on_a_name_chooses_or_marks_its_task(page: Page, client: Client) -> None:
    """A click must choose the task, or the delete key would ask about another one."""
    for name in ("clicked on", "newer one"):
        made = await client.tasks.create(task(name, "true"))
        await client.tasks.wait(made.id, timeout=60)
    await row(page, "newer one").wait_for()
    await row(page, "clicked on").locator(".hai-name").click()
    await expect(page.locator(".hai-page h2")).to_contain_text("clicked on")
    await expect(row(page, "clicked on")).to_have_attribute("aria-selected", "true")
    await row(page, "newer one").locator(".hai-name").click(modifiers=["Control"])
    await expect(page.locator(".hai-batch")).to_contain_text("1 marked")
    await expect(page.locator(".hai-page")).to_have_count(1)


async def test_all_that_is_listed_is_marked_and_unmarked(page: Page, client: Client) -> None:
    for i in range(3):
        made = await client.tasks.create(task(f"one of all {i}", "true"))
        await client.tasks.wait(made.id, timeout=60)
    await page.get_by_role("searchbox", name="Filter").fill('"one of all"')
    await expect(page.locator(".hai-panel .hai-row")).to_have_count(3)
    tasks = page.get_by_role("listbox", name="Tasks")
    await tasks.press("Control+a")
    await expect(page.locator(".hai-batch")).to_contain_text("3 marked")
    assert await page.evaluate("getSelection().toString()") == ""
    await tasks.press("Escape")
    await expect(page.locator(".hai-batch")).to_have_count(0)


async def test_a_form_that_cannot_be_had_is_asked_for_again_or_left(
    page: Page, lab: JupyterSetup
) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, body='{"message": "the platform is away"}')

    (lab.root / "away.py").write_text("print()")
    await open_file(page, "away.py")
    await page.route("**/hai_jupyter/draft*", refuse)
    form = page.locator(".hai-form")
    for _ in range(2):
        await page.locator(".hai-panel .hai-primary").press("Enter")
        await expect(form.get_by_role("alert")).to_contain_text("the platform is away")
        await page.keyboard.press("Escape")
        await expect(form).to_have_count(0)
    await page.locator(".hai-panel .hai-primary").press("Enter")
    await expect(form.get_by_role("alert")).to_contain_text("the platform is away")
    await page.unroute("**/hai_jupyter/draft*")
    await form.get_by_role("button", name="Reload").press("Enter")
    await expect(form.get_by_label("Name", exact=True)).to_be_focused()
    await page.keyboard.press("Escape")


async def test_tab_stays_in_the_form(page: Page, lab: JupyterSetup) -> None:
    (lab.root / "keys.py").write_text("print()")
    await open_file(page, "keys.py")
    await page.locator(".hai-panel .hai-primary").click()
    last = page.get_by_role("button", name="Submit task")
    await expect(last).to_be_enabled()
    await last.focus()
    await page.keyboard.press("Tab")
    first = page.locator(".hai-form").get_by_role("tab", name="Form")
    await expect(first).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(last).to_be_focused()
    for _ in range(20):
        await page.keyboard.press("Tab")
        assert await page.evaluate(INSIDE)
    await page.keyboard.press("Escape")
    await expect(page.locator(".hai-form")).to_have_count(0)


async def test_a_refused_form_keeps_the_focus_and_the_refusal_until_it_is_changed(
    page: Page, lab: JupyterSetup
) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=409, json={"reason": "CONFLICT", "message": "not today"})

    (lab.root / "refused.py").write_text("print()")
    await page.route("**/hai_jupyter/submit**", refuse)
    await open_file(page, "refused.py")
    await page.locator(".hai-panel .hai-primary").click()
    submit = page.get_by_role("button", name="Submit task")
    await expect(submit).to_be_enabled()
    await submit.focus()
    await page.keyboard.press("Enter")
    refused = page.locator(".hai-form .hai-failed")
    await expect(refused).to_have_text("not today")
    await expect(submit).to_be_focused()
    await page.get_by_label("Retries").fill("1")
    await expect(refused).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(page.locator(".hai-form")).to_have_count(0)

"""The card of a failed task shows the same text as `hai why`."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.jupyter.browsing import BROWSER, open_file, row, submit
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER


async def test_the_card_of_a_failed_task_says_why(page: Page, lab: JupyterSetup) -> None:
    (lab.root / "broken.py").write_text("import nowhere\n")
    await open_file(page, "broken.py")
    await submit(page)
    await row(page, "broken").locator(".hai-name").click()
    card = page.locator(".hai-why-card")
    await expect(card.get_by_role("heading", name="Why it failed")).to_be_visible(timeout=30_000)
    await expect(card).to_contain_text("was the first to fail: exit code 1")
    await expect(card.locator("pre")).to_contain_text("No module named 'nowhere'")
    await expect(card).to_contain_text("likely cause: a Python package is missing")
    await expect(card).to_contain_text("read its log: hai logs")

"""Names and texts of other users are shown as text, never as markup or script."""

from __future__ import annotations

from playwright.async_api import Page, expect

from hai.client.client import Client
from tests.jupyter.browsing import BROWSER, EVIL, NB, notebook, open_file, row, submit, task
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER
HOSTILE = f"""
from IPython.display import HTML, Javascript, display
display(HTML({EVIL!r}), Javascript("window.hacked = 1"))
display({{"application/vnd.hai.task+json": {{"id": {EVIL!r}}}, "text/plain": {EVIL!r}}}, raw=True)
"""


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


async def test_a_hostile_notebook_is_inert_before_and_after_it_has_run(
    page: Page, lab: JupyterSetup
) -> None:
    outputs = [NB.v4.new_output("display_data", {"text/html": EVIL, "text/plain": "x"})]
    cells = [
        NB.v4.new_code_cell(f"x = 1  # {EVIL}", metadata={"tags": ["parameters"]}),
        NB.v4.new_code_cell(HOSTILE, outputs=outputs),
        NB.v4.new_markdown_cell(f"{EVIL} <script>window.hacked = 1</script>"),
    ]
    NB.write(notebook(*cells), lab.root / f"hostile {EVIL}.ipynb")
    await open_file(page, "hostile")
    await submit(page)
    mine = row(page, "hostile")
    await expect(mine).to_contain_text("SUCCEEDED", timeout=60_000)
    await mine.locator(".hai-name").click()
    await page.get_by_role("button", name="Open the executed notebook").click()
    tab = page.locator(".lm-DockPanel-tabBar .lm-mod-current", has_text=".ipynb")
    await expect(tab).to_contain_text("hostile")
    shown = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output")
    await expect(shown.first).to_be_visible()
    await expect(shown).not_to_have_count(0)
    assert await page.locator("[onerror]").count() == 0

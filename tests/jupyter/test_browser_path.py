"""A dev container under a path of the platform, in a browser: JupyterLab, the panel and a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import async_playwright, expect

from hai.client.client import Client
from hai.client.tasks.container_spec import ContainerOptions, container_spec
from tests.jupyter.browsing import CHROMIUM, FLAGS, READABLE, execute
from tests.support.servers import ServerProcess

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"{CHROMIUM} is not installed"),
    pytest.mark.xdist_group("browser"),
]


async def test_lab_its_panel_and_a_kernel_work_below_a_path(tmp_path: Path) -> None:
    (tmp_path / "hai.toml").write_text("http_paths = true\n")
    server = ServerProcess(tmp_path, "--nodes", "1")
    try:
        await _work(server)
    finally:
        if server.running:
            server.end()
        server.sweep()


async def _work(server: ServerProcess) -> None:
    profile = server.start()
    async with Client(profile) as client, async_playwright() as playwright:
        task = await client.tasks.create(
            await container_spec(client.nodes, ContainerOptions("lab"))
        )
        opened = await client.containers.open(task.id)
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = await browser.new_page()
        page.set_default_timeout(90_000)
        await page.goto(opened.link)  # a page announces the start, and JupyterLab replaces it
        await page.locator(".jp-LauncherCard", has_text="Python 3").first.click()
        assert f"/t/{task.id}/main/lab" in page.url
        await page.locator(".jp-Notebook .cm-content").first.click()
        await page.keyboard.type("print(6 * 7)")
        output = page.locator(".jp-OutputArea-output")
        await execute(page, output)
        await expect(output).to_have_text("42\n")
        await page.locator('[data-id="hai-panel"]').click()
        await expect(page.locator(".hai-dot-good")).to_be_visible(timeout=30_000)
        await expect(page.locator(".hai-row")).to_have_count(1)
        seen = await page.evaluate(READABLE)
        assert [word for word in (profile.token, "hai_session") if word in seen] == []
        await browser.close()
        await client.containers.delete(task.id)

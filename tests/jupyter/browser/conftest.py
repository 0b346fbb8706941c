"""Fixtures of the browser tests: they share a browser, a JupyterLab and a platform; each has its own page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from hai.client.client import Client
from tests.jupyter.browsing import CHROMIUM, FLAGS, open_lab
from tests.jupyter.conftest import JupyterSetup, start_setup


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterSetup]:
    """Two nodes, and JupyterLab."""
    home = tmp_path_factory.mktemp("browser")
    variables = {
        "HAI_NOTICE_FILE": str(home / "notice.json"),
        "HAIENV_HOME": str(home / "environments"),
    }
    yield from start_setup(home, lab=True, **variables)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session(browser: Browser, lab: JupyterSetup) -> AsyncIterator[BrowserContext]:
    """Logged in, as a user is after his first visit."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(30_000)
    page = await context.new_page()
    await page.goto(f"{lab.lab.url}api/status?token={lab.lab.token}")
    await page.close()
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(session: BrowserContext, lab: JupyterSetup) -> AsyncIterator[Page]:
    """JupyterLab with the panel open; nothing may have gone wrong in it at the end."""
    page = await session.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    await open_lab(page, lab)
    yield page
    assert await page.evaluate("window.hacked") is None
    await page.close()
    assert problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def client(lab: JupyterSetup) -> AsyncIterator[Client]:
    async with Client(lab.profile) as client:
        yield client

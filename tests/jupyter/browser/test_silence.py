"""The panel shows a silent agent, and counts the seconds without further messages."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from playwright.async_api import Page, expect

from hai.client.client import Client
from tests.jupyter.browsing import BROWSER, open_lab, row, task
from tests.jupyter.conftest import JupyterSetup

pytestmark = BROWSER


def frame(number: int, name: str, user: str) -> str:
    """Return a message of the server extension about a task whose agent has been silent for 40 s."""
    since = time.time() - 40
    silent = {"count": 1, "rank": 0, "of": 1, "since": since}
    facts: dict[str, Any] = {"id": number, "name": name, "user": user, "nodes": 1, "version": 1}
    facts |= {"state": "RUNNING", "run": "RUNNING", "priority": 10, "silent": silent}
    node = {"name": "n0", "group": "g", "zone": "", "ready": True, "cordoned": False, "gpus": 8}
    tenant = {"task": number, "name": name, "user": user, "rank": 0, "silent": since}
    nodes = [{**node, "reason": "", "tenants": [tenant]}]
    link = {"up": True, "reason": "", "message": ""}
    sent = {"board": "b", "version": 7, "tasks": [facts], "nodes": nodes, "link": link}
    return json.dumps({**sent, "reset": True})


async def test_a_silent_agent_is_shown_in_the_list_on_the_page_and_on_the_map(
    page: Page, lab: JupyterSetup, client: Client
) -> None:
    made = await client.tasks.create(task("quiet", "sleep 300"))
    sent = frame(made.id, "quiet", made.user)
    await page.route_web_socket(re.compile(r"hai_jupyter/events"), lambda route: route.send(sent))
    await open_lab(page, lab)

    quiet = row(page, "quiet")
    await expect(quiet).to_contain_text(re.compile("agent silent for 4[0-9] s"))
    await expect(quiet.locator(".hai-status")).to_contain_text("◌ RUNNING")
    first = await quiet.inner_text()
    await expect(quiet).not_to_have_text(first)  # the page counts without messages

    await page.locator(".hai-panel").get_by_role("tab", name="Cluster").click()
    cell = page.locator(".hai-cell-silent")
    await expect(cell).to_have_text("◌")
    await expect(cell).to_have_attribute("title", re.compile("quiet, .*agent silent for"))

    await cell.click()
    head = page.locator(".hai-page-head")
    await expect(head).to_contain_text(re.compile("agent silent for .*; the program may run on"))
    await client.tasks.stop(made.id)

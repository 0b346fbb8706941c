"""`hai list --watch`: a table that stays current on a terminal, one line per change in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hai.v1.task_pb2 import Task
from hai_tui.cli.messages import to_dict
from hai_tui.cli.session import told_when_lost
from hai_tui.cli.settings import Settings
from hai_tui.cli.show import table
from hai_tui.cli.table import cells
from hai_tui.cli.task_view import TASKS

if TYPE_CHECKING:
    from hai.client.client import Client


async def watch_tasks(client: Client, settings: Settings, filter: str) -> int:
    """Show unfinished tasks that match, then every change, until it is interrupted."""
    await client.tasks.list(filter=filter, page_size=1)  # says at once what a watch would wait out
    if settings.decorated and settings.output in ("table", "wide"):
        return await _on_screen(client, settings, filter)
    async for changes in client.tasks.watch(filter, lost=told_when_lost(settings)):
        _print(settings, changes.tasks)
        sys.stdout.flush()
    return 0


def _print(settings: Settings, tasks: Sequence[Task]) -> None:
    if settings.json:
        for task in tasks:
            print(json.dumps(to_dict(task), ensure_ascii=False))
    elif tasks:
        table(settings, TASKS, tasks)
        settings.headers = False  # once, above the first lines


async def _on_screen(client: Client, settings: Settings, filter: str) -> int:
    from rich.live import Live

    from hai_tui.cli.decorated import console, rich_table

    tasks: dict[int, Task] = {}
    columns = TASKS.chosen(settings.columns, settings.output == "wide")
    with Live(console=console(settings), auto_refresh=False) as live:
        async for changes in client.tasks.watch(filter):
            tasks |= {task.id: task for task in changes.tasks}
            newest = [tasks[id] for id in sorted(tasks, reverse=True)]
            rows = cells(columns, newest, settings.clock())
            live.update(rich_table(columns, rows, settings.headers), refresh=True)
    return 0

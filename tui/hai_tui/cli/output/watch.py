"""`hai list --watch`: a table that stays current on a terminal, one line per change in a pipe."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from hai.v1.task_pb2 import Task
from hai_tui.cli.output.output import note_lost_connection
from hai_tui.cli.settings import Settings
from hai_tui.formatting.documents import to_dict
from hai_tui.formatting.table import cells, natural_widths, plain
from hai_tui.views.tasks import TASKS

if TYPE_CHECKING:
    from rich.table import Table

    from hai.client.client import Client


_USUAL = {"name": 20, "user": 8, "status": 11, "priority": 12, "group": 10, "age": 5}
"""Places for what is seldom longer: what comes later is not known yet."""


async def watch_tasks(client: Client, settings: Settings, filter: str) -> int:
    """Show unfinished tasks that match, then every change, until it is interrupted."""
    await client.tasks.list(filter=filter, page_size=1)  # says at once what a watch would wait out
    if settings.decorated and settings.output in ("table", "wide"):
        return await _on_screen(client, settings, filter)
    write = _as_json if settings.json else _Lines(settings)
    async with aclosing(client.tasks.watch(filter, lost=note_lost_connection(settings))) as answers:
        async for changes in answers:
            write(changes.tasks)
            sys.stdout.flush()
    return 0


def _as_json(tasks: Sequence[Task]) -> None:
    for task in tasks:
        print(json.dumps(to_dict(task), ensure_ascii=False))


class _Lines:
    """Lines that stand under one another, as far as what comes later fits: columns only ever grow."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._columns = TASKS.chosen(settings.columns, settings.output == "wide")
        self._headers = settings.headers
        self._widths = [_USUAL.get(column.key, 0) for column in self._columns]

    def __call__(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        rows = cells(self._columns, tasks, self._settings.clock())
        needed = natural_widths(self._columns, rows, self._headers)
        self._widths = [max(pair) for pair in zip(self._widths, needed, strict=True)]
        print(plain(self._columns, rows, self._headers, self._widths), end="")
        self._headers = False  # once, above the first lines


async def _on_screen(client: Client, settings: Settings, filter: str) -> int:
    from rich.live import Live

    from hai_tui.cli.output.rich_table import console

    tasks: dict[int, Task] = {}
    with Live(console=console(settings), auto_refresh=False) as live:

        def draw() -> None:
            live.update(_table(settings, tasks, live.console.width), refresh=True)

        async with aclosing(client.tasks.watch(filter)) as answers, _each_second(draw):
            async for changes in answers:
                tasks |= {task.id: task for task in changes.tasks}
                draw()
    return 0


def _table(settings: Settings, tasks: Mapping[int, Task], width: int) -> Table:
    from hai_tui.cli.output.rich_table import fitted, rich_table

    columns = TASKS.chosen(settings.columns, settings.output == "wide")
    newest = [tasks[id] for id in sorted(tasks, reverse=True)]
    rows = cells(columns, newest, settings.clock())
    return rich_table(*fitted(columns, rows, settings.headers, width), settings.headers)


@asynccontextmanager
async def _each_second(do: Callable[[], None]) -> AsyncIterator[None]:
    """Times go on also where nothing changes."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(1.0)
            do()

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()

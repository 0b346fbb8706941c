"""`hai list --watch`: a table that stays current on a terminal, and a line for each change in a pipe."""

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


_USUAL_WIDTHS = {"name": 20, "user": 8, "status": 11, "priority": 12, "group": 10, "age": 5}
"""Minimum widths of columns, because the tasks that follow are not known yet."""


async def watch_tasks(client: Client, settings: Settings, filter: str) -> int:
    """Print unfinished tasks that match the filter, then every change, until the command is interrupted."""
    await client.tasks.list(
        filter=filter, page_size=1
    )  # reports errors at once; the watch would retry
    if settings.decorated and settings.output in ("table", "wide"):
        return await _watch_on_terminal(client, settings, filter)
    write = _print_json if settings.json else _LinePrinter(settings)
    async with aclosing(
        client.tasks.watch(filter, lost=note_lost_connection(settings))
    ) as responses:
        async for changes in responses:
            write(changes.tasks)
            sys.stdout.flush()
    return 0


def _print_json(tasks: Sequence[Task]) -> None:
    for task in tasks:
        print(json.dumps(to_dict(task), ensure_ascii=False))


class _LinePrinter:
    """Prints rows as aligned lines. A column grows with its values and never shrinks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._columns = TASKS.chosen(settings.columns, settings.output == "wide")
        self._headers = settings.headers
        self._widths = [_USUAL_WIDTHS.get(column.key, 0) for column in self._columns]

    def __call__(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        rows = cells(self._columns, tasks, self._settings.clock())
        needed = natural_widths(self._columns, rows, self._headers)
        self._widths = [max(pair) for pair in zip(self._widths, needed, strict=True)]
        print(plain(self._columns, rows, self._headers, self._widths), end="")
        self._headers = False  # only above the first lines


async def _watch_on_terminal(client: Client, settings: Settings, filter: str) -> int:
    from rich.live import Live

    from hai_tui.cli.output.rich_table import console

    tasks: dict[int, Task] = {}
    with Live(console=console(settings), auto_refresh=False) as live:

        def draw() -> None:
            live.update(_make_table(settings, tasks, live.console.width), refresh=True)

        async with aclosing(client.tasks.watch(filter)) as responses, _redraw_each_second(draw):
            async for changes in responses:
                tasks |= {task.id: task for task in changes.tasks}
                draw()
    return 0


def _make_table(settings: Settings, tasks: Mapping[int, Task], width: int) -> Table:
    from hai_tui.cli.output.rich_table import drop_columns, rich_table

    columns = TASKS.chosen(settings.columns, settings.output == "wide")
    newest = [tasks[id] for id in sorted(tasks, reverse=True)]
    rows = cells(columns, newest, settings.clock())
    return rich_table(*drop_columns(columns, rows, settings.headers, width), settings.headers)


@asynccontextmanager
async def _redraw_each_second(draw: Callable[[], None]) -> AsyncIterator[None]:
    """Draw again each second, because ages change even if no task does."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(1.0)
            draw()

    job = asyncio.create_task(repeat())
    try:
        yield
    finally:
        job.cancel()

"""Prints the log lines of ranks, and finds the exit code of a task."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click

from hai.client.errors import HaiError
from hai_tui.cli.output.output import note, note_lost_connection
from hai_tui.cli.settings import Settings, call_server
from hai_tui.i18n import text
from hai_tui.views.tasks import status

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.connection.streams import OnLost
    from hai.v1.log_service_pb2 import LogLine
    from hai.v1.task_pb2 import Task


_EXPLAIN_AFTER_SECONDS = 2.0
_CLEAR_LINE, _RESET = "\x1b[K", "\x1b[m"
"""A line starts with _CLEAR_LINE on a terminal, because a longer progress bar may have been there."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which log lines to print, and how."""

    ranks: tuple[int, ...] = (0,)  # empty means all
    run: int = 0
    tail: int = 0
    since: datetime | None = None
    grep: re.Pattern[str] | None = None
    timestamps: bool = False
    output: str = "table"  # or json, or yaml
    task: str = ""  # the task's name if lines of several tasks are printed

    def label(self, rank: int) -> str:
        """Return a label that tells lines of several ranks or tasks apart."""
        label_parts = [self.task] if self.task else []
        if len(self.ranks) != 1:
            label_parts.append(str(rank))
        return f"[{' '.join(label_parts)}] " if label_parts else ""


def follow(settings: Settings, id: int, query: LogQuery) -> int:
    """Print lines until the task ends. Return its exit code, or 130 on Ctrl-C, which does not stop the task."""

    async def work(client: Client) -> int:
        reminder = asyncio.create_task(_explain_wait(client, id, settings))
        try:
            await print_lines(client, id, query, follow=True, lost=note_lost_connection(settings))
        finally:
            reminder.cancel()
        task = await client.tasks.get(id)
        note(settings, text("follow.end", id=id, status=status(task)))
        return task_exit_code(task)

    try:
        return call_server(settings, work)
    except KeyboardInterrupt:
        click.echo(text("follow.left", id=id), err=True)
        return 130


async def _explain_wait(client: Client, id: int, settings: Settings) -> None:
    """Say once why the task does not start."""
    await asyncio.sleep(_EXPLAIN_AFTER_SECONDS)
    with suppress(HaiError):  # the log stream reports a lost connection
        await print_wait_reason(client, id, settings)


async def print_wait_reason(client: Client, id: int, settings: Settings) -> None:
    """Say why the task waits. Without this, a task that does not start looks like a program that hangs."""
    task = await client.tasks.get(id)
    if task.HasField("waiting"):
        note(settings, text("follow.waits", id=id, why=task.waiting.message))


async def print_lines(
    client: Client, id: int, query: LogQuery, *, follow: bool, lost: OnLost | None = None
) -> bool:
    """Print the existing lines, and with `follow` those that come. Return False if there were none."""
    found_any = False
    stream = client.logs.tail(
        id,
        ranks=query.ranks,
        run=query.run,
        tail_lines=query.tail,
        since=query.since,
        follow=follow,
        lost=lost,
    )
    async with aclosing(stream):  # closes the stream also if writing fails
        async for batch in stream:
            found_any = found_any or bool(batch.lines)
            matching = (x for x in batch.lines if not query.grep or query.grep.search(x.text))
            is_terminal = sys.stdout.isatty() and query.output not in ("json", "yaml")
            rendered = (_render(line, query) for line in matching if is_terminal or not line.redraw)
            sys.stdout.write("".join(rendered))
            sys.stdout.flush()
    return found_any


def task_exit_code(task: Task) -> int:
    """Return 0 for success, else the exit code of the first failed rank, or 1."""
    if status(task) == "SUCCEEDED":
        return 0
    return next((code for code in _exit_codes(task) if code), 1)


def _exit_codes(task: Task) -> Sequence[int]:
    return [rank.exit_code for rank in task.run.ranks if rank.HasField("exit_code")]


def _render_structured(line: LogLine, query: LogQuery) -> str:
    from hai_tui.formatting.documents import to_dict

    document = ({"task": query.task} if query.task else {}) | to_dict(line)
    if query.output == "json":
        import json

        return json.dumps(document, ensure_ascii=False) + "\n"
    import yaml

    return str(yaml.safe_dump([document], sort_keys=False, allow_unicode=True))


def _render(line: LogLine, query: LogQuery) -> str:
    if query.output in ("json", "yaml"):
        return _render_structured(line, query)
    label = query.label(line.rank)
    time = f"{line.time.ToJsonString()} " if query.timestamps else ""
    if not sys.stdout.isatty():
        return f"{time}{label}{line.text}\n"
    from hai_tui.logs.ansi_sanitize import sanitize

    end = "\r" if line.redraw else "\n"
    # Without sanitize, a program of another user could control this terminal
    return f"{_CLEAR_LINE}{time}{label}{sanitize(line.text)}{_RESET}{end}"

"""Printing the lines of ranks, and the exit code that a task ends with."""

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
from hai_tui.cli.client_call import call
from hai_tui.cli.output.output import note, note_lost_connection
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text
from hai_tui.views.tasks import status

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.connection.resume import OnLost
    from hai.v1.log_service_pb2 import LogLine
    from hai.v1.task_pb2 import Task


_QUIET_SECONDS = 2.0
_CLEAR, _RESET = "\x1b[K", "\x1b[m"
"""Before each line on a terminal: what a longer progress bar may have left there."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Which lines of a task, and how to print them."""

    ranks: tuple[int, ...] = (0,)  # empty: all
    run: int = 0
    tail: int = 0
    since: datetime | None = None
    grep: re.Pattern[str] | None = None
    timestamps: bool = False
    output: str = "table"  # or json, or yaml: a list that grows
    task: str = ""  # its name, among lines of several

    def label(self, rank: int) -> str:
        """Whose line it is, when lines of several ranks or tasks are mixed."""
        label_parts = [self.task] if self.task else []
        if len(self.ranks) != 1:
            label_parts.append(str(rank))
        return f"[{' '.join(label_parts)}] " if label_parts else ""


def follow(settings: Settings, id: int, lines: Lines) -> int:
    """Print until the task ends; the task's exit code. Ctrl-C leaves the task running."""

    async def work(client: Client) -> int:
        reminder = asyncio.create_task(_explain_wait_later(client, id, settings))
        try:
            await print_lines(client, id, lines, follow=True, lost=note_lost_connection(settings))
        finally:
            reminder.cancel()
        task = await client.tasks.get(id)
        note(settings, text("follow.end", id=id, status=status(task)))
        return task_exit_code(task)

    try:
        return call(settings, work)
    except KeyboardInterrupt:
        click.echo(text("follow.left", id=id), err=True)
        return 130


async def _explain_wait_later(client: Client, id: int, settings: Settings) -> None:
    """Once."""
    await asyncio.sleep(_QUIET_SECONDS)
    with suppress(HaiError):  # the lines tell of a server that is away
        await print_wait_reason(client, id, settings)


async def print_wait_reason(client: Client, id: int, settings: Settings) -> None:
    """A task that does not start prints nothing, which looks like a program that hangs."""
    task = await client.tasks.get(id)
    if task.HasField("waiting"):
        note(settings, text("follow.waits", id=id, why=task.waiting.message))


async def print_lines(
    client: Client, id: int, lines: Lines, *, follow: bool, lost: OnLost | None = None
) -> bool:
    """Print the lines that there are, and with `follow` those that come; False: there were none."""
    some = False
    stream = client.logs.tail(
        id,
        ranks=lines.ranks,
        run=lines.run,
        tail_lines=lines.tail,
        since=lines.since,
        follow=follow,
        lost=lost,
    )
    async with aclosing(stream):  # also where nothing can be written any more
        async for batch in stream:
            some = some or bool(batch.lines)
            matching = (x for x in batch.lines if not lines.grep or lines.grep.search(x.text))
            drawn = sys.stdout.isatty() and lines.output not in ("json", "yaml")
            rendered = (_render(line, lines) for line in matching if drawn or not line.redraw)
            sys.stdout.write("".join(rendered))
            sys.stdout.flush()
    return some


def task_exit_code(task: Task) -> int:
    """0 for success; else what the first failed rank ended with, or 1."""
    if status(task) == "SUCCEEDED":
        return 0
    return next((code for code in _exit_codes(task) if code), 1)


def _exit_codes(task: Task) -> Sequence[int]:
    return [rank.exit_code for rank in task.run.ranks if rank.HasField("exit_code")]


def _structured(line: LogLine, lines: Lines) -> str:
    from hai_tui.formatting.documents import to_dict

    found = ({"task": lines.task} if lines.task else {}) | to_dict(line)
    if lines.output == "json":
        import json

        return json.dumps(found, ensure_ascii=False) + "\n"
    import yaml

    return str(yaml.safe_dump([found], sort_keys=False, allow_unicode=True))


def _render(line: LogLine, lines: Lines) -> str:
    if lines.output in ("json", "yaml"):
        return _structured(line, lines)
    label = lines.label(line.rank)
    time = f"{line.time.ToJsonString()} " if lines.timestamps else ""
    if not sys.stdout.isatty():
        return f"{time}{label}{line.text}\n"
    from hai_tui.logs.ansi_sanitize import (
        sanitize,  # programs of others must not steer this terminal
    )

    end = "\r" if line.redraw else "\n"
    return f"{_CLEAR}{time}{label}{sanitize(line.text)}{_RESET}{end}"

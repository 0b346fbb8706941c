"""`hai why`, `hai queue` and `hai events`: the reason why a task waits, the queue, and the history of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, TableCommand
from hai_tui.cli.output.output import dump, note_cut_queue, note_warnings, show
from hai_tui.cli.parameters import group_filter, one_task
from hai_tui.cli.settings import Settings, with_client
from hai_tui.formatting.table import Column, View, printable
from hai_tui.formatting.values import local, priority_name
from hai_tui.i18n import text
from hai_tui.name_warnings import group_warning
from hai_tui.views.dry_run import task_ahead_text
from hai_tui.views.silent_agents import task_silence_text
from hai_tui.views.start_forecast import start_sentences
from hai_tui.views.tasks import QUEUE, status

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai.v1.task_pb2 import Task, TaskEvent
    from hai.v1.task_service_pb2 import ExplainTaskResponse

EVENTS = View(
    key="events",
    name=lambda event: str(event.sequence),
    empty="none.events",
    columns=(
        Column("seq", lambda e, now: str(e.sequence), right=True),
        Column("time", lambda e, now: local(e.time)),
        Column("actor", lambda e, now: e.actor),
        Column("event", lambda e, now: e.kind),
        Column("run", lambda e, now: str(e.run or "-"), right=True),
        Column("rank", lambda e, now: _rank_cell(e), right=True),
        Column("reason", lambda e, now: e.reason or "-", folds=True),
    ),
)


def _rank_cell(event: TaskEvent) -> str:
    return str(event.rank) if event.run and event.rank >= 0 else "-"


@click.command("why", cls=HaiCommand)
@one_task
@with_client
async def why(settings: Settings, client: Client, task: str, kind: Kind) -> None:
    """Say why a task waits: what stands in the way, who is ahead, and what would help.
    Of a task that has failed it says which rank failed first, the likely cause, and what to try.
    Of a running task it says which agents are silent, what that means, and what can be done.

    \b
    Examples:
      hai why 12
      hai why 12 --json | jq -r .waiting.reason
    """
    id = await client.tasks.resolve(task, kind)
    answer = await client.tasks.explain(id)
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(answer))
    else:
        task_row = await client.tasks.get(id)
        click.echo("\n".join(_explain(task_row, answer, settings.clock())))


def _explain(task: Task, answer: ExplainTaskResponse, now: float) -> list[str]:
    """Return the lines of `hai why`."""
    facts = {"id": task.id, "name": task.name, "status": status(task)}
    if silent := task_silence_text(task, now):
        return [
            text("why.silent", **facts, silent=silent),
            *_indented(answer.constraints),
            *_section("why.do", answer.suggestions),
            *_section("why.history", answer.history),
        ]
    if status(task) == "FAILED" and answer.constraints:
        return [
            text("why.failed", **facts),
            *_indented([printable(line) for line in answer.constraints]),
            *_section("why.do", answer.suggestions),
            *_section("why.history", answer.history),
        ]
    if not answer.waiting.reason:
        return [text("why.runs", **facts), *_section("why.history", answer.history)]
    return [
        text("why.waits", **facts, reason=answer.waiting.reason),
        *_indented([answer.waiting.message, *answer.constraints]),
        *_queue_position(task, answer),
        *_indented(start_sentences(answer.waiting.predicted_start, now)),
        *_section("why.ahead", [task_ahead_text(other) for other in answer.ahead]),
        *_section("why.help", answer.suggestions),
        *_section("why.history", answer.history),
    ]


def _queue_position(task: Task, answer: ExplainTaskResponse) -> list[str]:
    """Return a line with the position in the queue; none if the task has no position."""
    if not answer.waiting.queue_place:
        return []
    level = priority_name(answer.waiting.effective_priority)
    position = answer.waiting.queue_place
    return _indented([text("why.place", place=position, group=task.group, priority=level)])


def _section(title: str, lines: Sequence[str]) -> list[str]:
    """Return a title and indented lines; nothing if there are no lines."""
    return [text(title), *_indented(lines)] if lines else []


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in dict.fromkeys(lines) if line]


@click.command("queue", cls=TableCommand)
@group_filter
@with_client
async def queue(settings: Settings, client: Client, group: str) -> None:
    """Show the waiting tasks in the order in which they are considered.

    \b
    Examples:
      hai queue
      hai queue -g default -o wide
    """
    waiting = await client.tasks.queue(group)
    show(settings, QUEUE, waiting)
    note_cut_queue(settings, waiting)
    if group and not waiting:
        note_warnings(settings, await group_warning(client, group))


@click.command("events", cls=TableCommand)
@one_task
@click.option(
    "--after", type=click.IntRange(0), metavar="N", default=0, help="Only later sequence numbers."
)
@with_client
async def events(settings: Settings, client: Client, task: str, kind: Kind, after: int) -> None:
    """Show everything that has happened to a task: who did what, when and why.

    \b
    Examples:
      hai events 12
      hai events 12 --after 40 --json
    """
    id = await client.tasks.resolve(task, kind)
    show(settings, EVENTS, await client.tasks.events(id, after))

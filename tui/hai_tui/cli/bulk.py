"""One action on several tasks: ask first, then an outcome for each; one failure does not stop the rest."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from hai.client.errors import HaiError, Invalid
from hai_tui.cli.client_call import call
from hai_tui.cli.confirm import confirmed
from hai_tui.cli.errors import exit_code, print_error
from hai_tui.cli.output.output import note, show
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text
from hai_tui.views.tasks import TASKS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai.v1.task_pb2 import Task

_MAX_NAMED = 20
"""Tasks that a question names before it only counts."""


@dataclass(frozen=True, slots=True)
class Action:
    """What to do with each task, and how to say that it is done."""

    do: Callable[[Client, int], Awaitable[Task]]
    done: Callable[[Task], str]
    verb: str = ""  # key of the question's verb; empty: never ask
    yes: bool = False
    ends: bool = False  # the tasks, for which others may wait: of several the newest goes first


@dataclass(slots=True)
class _Result:
    tasks: list[Task] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)


def on_each(settings: Settings, refs: Sequence[str], kind: Kind, action: Action) -> int:
    """Do it to every task; the exit code of the first failure, or 0."""

    async def work(client: Client) -> int:
        result = _Result()
        ids = await _resolve(client, settings, refs, kind, result)
        if ids and not await _agreed(client, ids, action):
            note(settings, text("confirm.no"))
            return 1
        for ref, id in _in_turn(ids, action):
            await _one(client, settings, ref, id, action, result)
        if not settings.sentences:
            show(settings, TASKS, result.tasks)
        return next(iter(result.codes), 0)

    return call(settings, work)


async def _resolve(
    client: Client, settings: Settings, refs: Sequence[str], kind: Kind, result: _Result
) -> dict[str, int]:
    ids: dict[str, int] = {}
    for ref in dict.fromkeys(refs):
        try:
            ids[ref] = await client.tasks.resolve(ref, kind)
        except HaiError as error:
            _failed(settings, ref, error, result)
    return ids


def _in_turn(ids: dict[str, int], action: Action) -> Sequence[tuple[str, int]]:
    return sorted(ids.items(), key=lambda named: -named[1] if action.ends else 0)


async def _one(
    client: Client, settings: Settings, ref: str, id: int, action: Action, result: _Result
) -> None:
    try:
        task = await action.do(client, id)
    except HaiError as error:
        _failed(settings, ref, error, result)
        return
    result.tasks.append(task)
    if settings.sentences:
        click.echo(f"{task.id}  {task.name}  {action.done(task)}")


def _failed(settings: Settings, ref: str, error: HaiError, result: _Result) -> None:
    result.codes.append(exit_code(error))
    print_error(error, as_json=settings.json, subject=ref)


async def _agreed(client: Client, ids: dict[str, int], action: Action) -> bool:
    """Ask a person at a terminal when several tasks, tasks of others, or tasks for which others wait are meant."""
    if not action.verb or action.yes or not sys.stdin.isatty():
        return True
    me = (await client.users.whoami()).user.name
    tasks = [await client.tasks.get(id) for id in list(ids.values())[:_MAX_NAMED]]
    behind = await _behind(client, set(ids.values())) if action.ends else ""
    if len(ids) == 1 and tasks[0].user == me and not behind:
        return True
    more = f" … ({len(ids)})" if len(ids) > _MAX_NAMED else ""
    question = text("confirm", verb=text(f"verb.{action.verb}"), what=_named(tasks) + more)
    return confirmed(behind + question)


async def _behind(client: Client, ids: set[int]) -> str:
    """Who else waits for these to end; a server of before cannot tell."""
    some = ",".join(map(str, sorted(ids)[:_MAX_NAMED]))
    try:
        page = await client.tasks.list(filter=f"after:{some}", page_size=2 * _MAX_NAMED)
    except Invalid:
        return ""
    others = [task for task in page.tasks if task.id not in ids]
    more = " …" if len(others) > _MAX_NAMED or page.next_page_token else ""
    return text("confirm.behind", what=_named(others[:_MAX_NAMED]) + more) if others else ""


def _named(tasks: Sequence[Task]) -> str:
    return ", ".join(f"{t.id} {t.name} ({t.user})" for t in tasks)

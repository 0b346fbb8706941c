"""Runs one action on several tasks: asks first, then prints a result for each. A failure does not stop the others."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from hai.client.errors import HaiError, Invalid
from hai_tui.cli.errors import exit_code, print_error
from hai_tui.cli.output.output import note, show
from hai_tui.cli.prompts import confirm
from hai_tui.cli.settings import Settings, call_server
from hai_tui.i18n import text
from hai_tui.views.tasks import TASKS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai.v1.task_pb2 import Task

_MAX_NAMED = 20
"""A question names at most this many tasks."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a task, and how its result is described."""

    run: Callable[[Client, int], Awaitable[Task]]
    describe: Callable[[Task], str]
    verb: str = ""  # key of the verb in the question; if it is empty, nothing is asked
    yes: bool = False  # the user has agreed in advance
    ends_task: bool = False


@dataclass(slots=True)
class _Result:
    tasks: list[Task] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)


def run_on_each(settings: Settings, refs: Sequence[str], kind: Kind, action: Action) -> int:
    """Run the action on every task. Return the exit code of the first failure, or 0."""

    async def work(client: Client) -> int:
        result = _Result()
        ids = await _resolve_ids(client, settings, refs, kind, result)
        if ids and not await _is_confirmed(client, ids, action):
            note(settings, text("confirm.no"))
            return 1
        # The newest task ends first. If an older one ended first, newer ones that wait for it would start.
        for ref, id in sorted(ids.items(), key=lambda item: -item[1] if action.ends_task else 0):
            await _run_on_one(client, settings, ref, id, action, result)
        if not settings.sentences:
            show(settings, TASKS, result.tasks)
        return next(iter(result.codes), 0)

    return call_server(settings, work)


async def _resolve_ids(
    client: Client, settings: Settings, refs: Sequence[str], kind: Kind, result: _Result
) -> dict[str, int]:
    ids: dict[str, int] = {}
    for ref in dict.fromkeys(refs):
        try:
            ids[ref] = await client.tasks.resolve(ref, kind)
        except HaiError as error:
            _report_failure(settings, ref, error, result)
    return ids


async def _run_on_one(
    client: Client, settings: Settings, ref: str, id: int, action: Action, result: _Result
) -> None:
    try:
        task = await action.run(client, id)
    except HaiError as error:
        _report_failure(settings, ref, error, result)
        return
    result.tasks.append(task)
    if settings.sentences:
        click.echo(f"{task.id}  {task.name}  {action.describe(task)}")


def _report_failure(settings: Settings, ref: str, error: HaiError, result: _Result) -> None:
    result.codes.append(exit_code(error))
    print_error(error, as_json=settings.json, subject=ref)


async def _is_confirmed(client: Client, ids: dict[str, int], action: Action) -> bool:
    """Ask before an action on several tasks, on tasks of others, or on tasks that others wait for.

    Return True without a question for any other action, with --yes, and if stdin is not a terminal.
    """
    if not action.verb or action.yes or not sys.stdin.isatty():
        return True
    me = (await client.users.whoami()).user.name
    tasks = [await client.tasks.get(id) for id in list(ids.values())[:_MAX_NAMED]]
    dependents = await _describe_dependents(client, set(ids.values())) if action.ends_task else ""
    if len(ids) == 1 and tasks[0].user == me and not dependents:
        return True
    more = f" … ({len(ids)})" if len(ids) > _MAX_NAMED else ""
    question = text("confirm", verb=text(f"verb.{action.verb}"), what=_describe(tasks) + more)
    return confirm(dependents + question)


async def _describe_dependents(client: Client, ids: set[int]) -> str:
    """Return a sentence about the other tasks that wait for these to end; empty if there are none.

    It is also empty for an old server, which does not know the filter.
    """
    id_list = ",".join(map(str, sorted(ids)[:_MAX_NAMED]))
    try:
        page = await client.tasks.list(filter=f"after:{id_list}", page_size=2 * _MAX_NAMED)
    except Invalid:
        return ""
    others = [task for task in page.tasks if task.id not in ids]
    more = " …" if len(others) > _MAX_NAMED or page.next_page_token else ""
    return text("confirm.behind", what=_describe(others[:_MAX_NAMED]) + more) if others else ""


def _describe(tasks: Sequence[Task]) -> str:
    return ", ".join(f"{t.id} {t.name} ({t.user})" for t in tasks)

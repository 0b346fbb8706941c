"""Tasks on their way to the server: checked, or sent in order and told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.output.output import dump, note, show, show_one
from hai_tui.cli.settings import Settings, call_server
from hai_tui.cli.submission.dependencies import add_dependencies
from hai_tui.cli.submission.sweep import Sweep, swept
from hai_tui.cli.submission.workspace_push import is_reference, push_workspaces
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task
    from hai.v1.task_spec_pb2 import TaskSpec

_LAST_SECONDS = 2.0


def submit(settings: Settings, specs: Sequence[TaskSpec], options: Mapping[str, Any]) -> int:
    """Send the specs in order; say that a task is submitted only once the server has it."""
    sweep = swept(specs, options)
    specs = sweep.specs
    _require_valid(specs)
    if options["follow"] and len(specs) > 1 and not options["dry_run"]:
        raise click.UsageError("-f follows one task, and these are several")
    if options["after"]:  # before a push, which may take long
        call_server(
            settings, lambda client: add_dependencies(client, settings, specs, options["after"])
        )
    if options["dry_run"]:
        return call_server(settings, lambda client: _check(client, settings, specs))
    if not options["no_push"]:
        push_workspaces(settings, specs)
    tasks = call_server(settings, lambda client: _send(client, settings, sweep))
    if not options["follow"]:
        return 0
    from hai_tui.cli.output.follow import LogQuery, follow

    return follow(settings, tasks[0].id, LogQuery(ranks=(0,)))


def _require_valid(specs: Sequence[TaskSpec]) -> None:
    """Before a push or a question to the server. Raises Invalid with every violation of the first that has some."""
    from hai.client.taskfile.spec import require_valid
    from hai.client.taskfile.validation import violations

    for spec in specs:
        require_valid(f"the task {spec.name}", violations(spec))


async def _check(client: Client, settings: Settings, specs: Sequence[TaskSpec]) -> int:
    from hai_tui.views.dry_run import as_data, as_yaml, exit_code

    worst = 0
    for number, spec in enumerate(specs):
        answer = await client.tasks.dry_run(spec)
        if settings.json:
            dump(settings, as_data(spec, answer))
        else:
            click.echo(("---\n" if number else "") + as_yaml(spec, answer), nl=False)
        note(settings, text("valid", name=spec.name))
        note_ineffective_options(settings, spec)
        worst = worst or exit_code(answer)
    return worst


def note_ineffective_options(settings: Settings, spec: TaskSpec) -> None:
    """Options that HAI's task files may have, and that nothing here reads."""
    from hai.client.taskfile.fields import without_effect

    if paths := without_effect(spec):
        note(settings, text("schema.no_effect", fields=", ".join(paths)))


async def _send(client: Client, settings: Settings, sweep: Sweep) -> list[Task]:
    tasks: list[Task] = []
    try:
        for index, spec in enumerate(sweep.specs):
            if 0 < sweep.at_most <= index:
                spec.options.after.add(task=tasks[index - sweep.at_most].id, outcome="ended")
            try:
                await _make(client, spec, tasks)
            finally:
                if settings.sentences and len(tasks) > index:
                    _report_submitted(settings, tasks[-1], spec, alone=not sweep.tag)
    finally:  # what the server has is told, also where it refuses a later one
        if sweep.tag and tasks:
            message_key = "submitted.array" if len(tasks) == len(sweep.specs) else "submitted.part"
            note(settings, text(message_key, count=len(tasks), tag=sweep.tag))
        _show(settings, sweep.specs, tasks)
    return tasks


async def _make(client: Client, spec: TaskSpec, tasks: list[Task]) -> None:
    """Ctrl-C waits a moment for the one that is under way: the server may have it."""
    import asyncio

    making = asyncio.ensure_future(client.tasks.create(spec))
    try:
        tasks.append(await asyncio.shield(making))
    except asyncio.CancelledError:
        done, _ = await asyncio.wait([making], timeout=_LAST_SECONDS)
        tasks.extend(each.result() for each in done)
        raise


def _report_submitted(settings: Settings, task: Task, spec: TaskSpec, *, alone: bool) -> None:
    click.echo(text("submitted", id=task.id, name=task.name))
    if alone:
        note(settings, text("submitted.next", id=task.id))
        if is_reference(spec.spec.workspace):
            note(settings, text("submitted.files", id=task.id))


def _show(settings: Settings, specs: Sequence[TaskSpec], tasks: Sequence[Task]) -> None:
    from hai_tui.views.tasks import TASKS

    if len(specs) > 1 and not settings.sentences:
        show(settings, TASKS, tasks)
    elif tasks and not settings.sentences:
        show_one(settings, TASKS, tasks[0])
    if len(tasks) < len(specs) > 1 and not settings.json:
        facts = {"number": len(tasks) + 1, "count": len(specs), "name": specs[len(tasks)].name}
        note(settings, text("submitted.until", **facts))

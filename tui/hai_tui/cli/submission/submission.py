"""Submits tasks, or only checks them, and prints the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.output.output import dump, note, note_warnings, show, show_one
from hai_tui.cli.settings import Settings, call_server
from hai_tui.cli.submission.dependencies import add_dependencies
from hai_tui.cli.submission.sweep import Sweep, make_sweep
from hai_tui.cli.submission.workspace_push import is_reference, push_workspaces
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task
    from hai.v1.task_spec_pb2 import TaskSpec

_CANCEL_SECONDS = 2.0


def submit(settings: Settings, specs: Sequence[TaskSpec], options: Mapping[str, Any]) -> int:
    """Create the tasks in order, or check them with --dry-run. Return the exit code."""
    sweep = make_sweep(specs, options)
    specs = sweep.specs
    _require_valid(specs)
    if options["follow"] and len(specs) > 1 and not options["dry_run"]:
        raise click.UsageError("-f follows one task, and these are several")
    if options["after"]:  # errors here come before the push, which may take long
        call_server(
            settings, lambda client: add_dependencies(client, settings, specs, options["after"])
        )
    if options["dry_run"]:
        return call_server(settings, lambda client: _dry_run(client, settings, specs))
    if not options["no_push"]:
        push_workspaces(settings, specs)
    tasks = call_server(settings, lambda client: _create_all(client, settings, sweep))
    if not options["follow"]:
        return 0
    from hai_tui.cli.output.follow import LogQuery, follow

    return follow(settings, tasks[0].id, LogQuery(ranks=(0,)))


def _require_valid(specs: Sequence[TaskSpec]) -> None:
    """Raise Invalid with every violation of the first invalid task, before anything is sent."""
    from hai.client.taskfile.spec import require_valid
    from hai.client.taskfile.validation import violations

    for spec in specs:
        require_valid(f"the task {spec.name}", violations(spec))


async def _dry_run(client: Client, settings: Settings, specs: Sequence[TaskSpec]) -> int:
    """Print what the scheduler would do with each task. Return the first exit code that is not 0."""
    from hai_tui.views.dry_run import as_data, as_yaml, exit_code

    first_failure = 0
    for number, spec in enumerate(specs):
        answer = await client.tasks.dry_run(spec)
        if settings.json:
            dump(settings, as_data(spec, answer))
        else:
            click.echo(("---\n" if number else "") + as_yaml(spec, answer), nl=False)
        note(settings, text("valid", name=spec.name))
        note_ineffective_options(settings, spec)
        first_failure = first_failure or exit_code(answer)
    return first_failure


def note_ineffective_options(settings: Settings, spec: TaskSpec) -> None:
    """Note the options of HAI's task files that have no effect here."""
    from hai.client.taskfile.fields import without_effect

    if paths := without_effect(spec):
        note(settings, text("schema.no_effect", fields=", ".join(paths)))


async def _create_all(client: Client, settings: Settings, sweep: Sweep) -> list[Task]:
    """Create the tasks one after the other, and report each. With `at_most`, a task waits for an earlier one to end."""
    tasks: list[Task] = []
    try:
        for index, spec in enumerate(sweep.specs):
            if 0 < sweep.at_most <= index:
                spec.options.after.add(task=tasks[index - sweep.at_most].id, outcome="ended")
            try:
                await _create(client, spec, tasks)
            finally:
                if settings.sentences and len(tasks) > index:
                    _report_submitted(settings, tasks[-1], spec, alone=not sweep.tag)
                if len(tasks) > index:
                    note_warnings(settings, *(f"warning: {w}" for w in tasks[-1].warnings))
    finally:  # report the created tasks also if the server refuses a later one
        if sweep.tag and tasks:
            message_key = "submitted.array" if len(tasks) == len(sweep.specs) else "submitted.part"
            note(settings, text(message_key, count=len(tasks), tag=sweep.tag))
        _print_tasks(settings, sweep.specs, tasks)
    return tasks


async def _create(client: Client, spec: TaskSpec, tasks: list[Task]) -> None:
    """Create a task and append it to `tasks`.

    On Ctrl-C wait a moment for the answer, because the server may already have created the task.
    """
    import asyncio

    creation = asyncio.ensure_future(client.tasks.create(spec))
    try:
        tasks.append(await asyncio.shield(creation))
    except asyncio.CancelledError:
        done, _ = await asyncio.wait([creation], timeout=_CANCEL_SECONDS)
        tasks.extend(each.result() for each in done)
        raise


def _report_submitted(settings: Settings, task: Task, spec: TaskSpec, *, alone: bool) -> None:
    click.echo(text("submitted", id=task.id, name=task.name))
    if alone:
        note(settings, text("submitted.next", id=task.id))
        if is_reference(spec.spec.workspace):
            note(settings, text("submitted.files", id=task.id))


def _print_tasks(settings: Settings, specs: Sequence[TaskSpec], tasks: Sequence[Task]) -> None:
    """Print the created tasks unless a sentence was printed for each, and say where creation stopped."""
    from hai_tui.views.tasks import TASKS

    if len(specs) > 1 and not settings.sentences:
        show(settings, TASKS, tasks)
    elif tasks and not settings.sentences:
        show_one(settings, TASKS, tasks[0])
    if len(tasks) < len(specs) > 1 and not settings.json:
        facts = {"number": len(tasks) + 1, "count": len(specs), "name": specs[len(tasks)].name}
        note(settings, text("submitted.until", **facts))

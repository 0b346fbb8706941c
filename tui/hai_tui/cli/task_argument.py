"""How commands take tasks as arguments: an id, a yaml file or a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hai_tui.cli.completion import tasks as complete_tasks

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def one_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments `task` and `kind`."""
    argument = click.argument("task", metavar="TASK", shell_complete=complete_tasks)
    return argument(kind_of_task(function))


def many_tasks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments `tasks` (at least one) and `kind`."""
    argument = click.argument(
        "tasks", metavar="TASK...", nargs=-1, required=True, shell_complete=complete_tasks
    )
    return argument(kind_of_task(function))


def any_tasks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments `tasks` (perhaps none) and `kind`."""
    argument = click.argument("tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_tasks)
    return argument(kind_of_task(function))


kind_of_task: Decorator = click.option(
    "-t",
    "--type",
    "kind",
    type=click.Choice(["auto", "id", "name", "yaml"]),
    default="auto",
    help="Take TASK as an id, a name or a yaml file; auto guesses.",
)
"""Argument `kind`: how a word for a task is read."""

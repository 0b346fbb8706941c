"""Arguments and options that several commands take: tasks, ranks, points in time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from hai_tui.cli.completion import complete_groups, complete_tasks, complete_users
from hai_tui.cli.settings import Settings
from hai_tui.formatting import values

Callback = Callable[..., Any]
Decorator = Callable[[Callback], Callback]


def combine(*decorators: Decorator) -> Decorator:
    """Return a decorator that applies all of these decorators. Help lists their options in this order."""

    def decorate(function: Callback) -> Callback:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


task_kind_option: Decorator = click.option(
    "-t",
    "--type",
    "kind",
    type=click.Choice(["auto", "id", "name", "yaml"]),
    default="auto",
    help="Take TASK as an id, a name or a yaml file; auto guesses.",
)
"""Passes `kind`, which says how to read a TASK."""

one_task: Decorator = combine(
    click.argument("task", metavar="TASK", shell_complete=complete_tasks), task_kind_option
)
"""Passes `task` and `kind`."""

many_tasks: Decorator = combine(
    click.argument(
        "tasks", metavar="TASK...", nargs=-1, required=True, shell_complete=complete_tasks
    ),
    task_kind_option,
)
"""Passes `tasks`, at least one, and `kind`."""

any_tasks: Decorator = combine(
    click.argument("tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_tasks),
    task_kind_option,
)
"""Passes `tasks`, possibly none, and `kind`."""

rank_option: Decorator = click.option(
    "-r", "--rank", type=click.IntRange(0), default=0, show_default=True, help="Which rank."
)

group_filter: Decorator = click.option(
    "-g", "--group", default="", shell_complete=complete_groups, help="One node group."
)

user_option: Decorator = click.option(
    "--user", default="", shell_complete=complete_users, help="Default: yourself."
)

yes_option: Decorator = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask for confirmation."
)


def parse_ranks(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Parse an option that takes ranks. The result is empty for all ranks."""
    return values.ranks(value)


def parse_past(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse an option that takes a time, or how long ago it was."""
    return values.past_time(value, _now(ctx)) if value else None


def parse_future(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse an option that takes a time, or how far away it is."""
    return values.deadline(value, _now(ctx)) if value else None


def _now(ctx: click.Context) -> float:
    return ctx.ensure_object(Settings).clock()


since_option: Decorator = click.option(
    "--since", metavar="TIME", callback=parse_past, help="10m, 2h, or 2026-11-21T11:08."
)

until_option: Decorator = click.option(
    "--until", metavar="TIME", callback=parse_past, help="10m (ago), or 2026-11-21T11:08."
)

expires_option: Decorator = click.option(
    "--expires", metavar="TIME", callback=parse_future, help="30d, or 2026-12-31. Default: never."
)

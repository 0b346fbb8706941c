"""`hai shell`: a terminal or a command in a rank of a task."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.parameters import one_task, rank_option
from hai_tui.cli.settings import Settings, with_client

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind


@click.command(
    "shell",
    cls=HaiCommand,
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": False},
)
@one_task
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@rank_option
@click.option(
    "--tty/--no-tty",
    default=None,
    help="With or without a terminal. Default: with, where this is one.",
)
@with_client
async def shell(
    settings: Settings,
    client: Client,
    task: str,
    kind: Kind,
    command: tuple[str, ...],
    rank: int,
    tty: bool | None,
) -> int:
    """Open a terminal in a rank of a running task, or run a command there.

    It runs as the task's program does: same user, directory and variables. It ends with the rank.
    In a pipe there is no terminal; stdin, stdout and stderr are passed on as they are.
    The exit code is that of the command.

    \b
    Examples:
      hai shell 12
      hai shell train -r 3 -- nvidia-smi
      hai shell 12 -- tar c logs | tar x
    """
    from hai_tui.cli.tunnels import terminal

    if tty and not terminal.is_terminal():
        raise click.UsageError("--tty needs a terminal on this machine")
    use_terminal = terminal.is_terminal() if tty is None else tty

    id = await client.tasks.resolve(task, kind)
    size, term = (
        (terminal.terminal_size(), os.environ.get("TERM", "")) if use_terminal else (None, "")
    )
    tunnel, answers = client.tunnels.shell(id, command, rank=rank, terminal=size, term=term)
    try:
        return await terminal.attach(tunnel, answers, terminal=use_terminal)
    finally:
        await answers.aclose()

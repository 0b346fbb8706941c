"""`hai tui`: the full-screen app. Textual is imported by name and only here, so that other commands start faster."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.settings import Settings


@click.command("tui", cls=HaiCommand)
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--readonly", is_flag=True, help="Refuse every action that changes something.")
@click.option("--demo", is_flag=True, help="Show a made-up cluster; no server is asked.")
@click.pass_obj
def tui(settings: Settings, words: tuple[str, ...], readonly: bool, demo: bool) -> int:
    """Open the full-screen terminal app, at a page if one is named.

    WORD is what follows `:` inside the app: a task's id, `logs 12`, `nodes`, `tasks status:failed`.
    `?` shows the keys of each page, q leaves.

    \b
    Examples:
      hai tui
      hai tui 12                       one task
      hai tui logs 12
      hai tui tasks status:failed user:me
      hai tui --readonly               changes nothing
      hai tui --demo                   a made-up cluster, without any server
    """
    return open_app(settings, words, readonly=readonly, demo=demo)


def open_app(
    settings: Settings, words: tuple[str, ...], *, readonly: bool, demo: bool = False
) -> int:
    """Run the app until the user leaves it. Return the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("hai tui needs a terminal; `hai top --once` prints a page anywhere")
    if find_spec("textual") is None:
        raise click.ClickException("the app is not installed: pip install 'hai-platform[tui]'")
    start = import_module("hai_tui.start")
    code: int = start.run(settings.profile, page_line(words), readonly=readonly, demo=demo)
    return code


def page_line(words: tuple[str, ...]) -> str:
    """Return what the user would type after `:` for these words. A bare number means a task."""
    if words and words[0].isdigit():
        words = ("task", *words)
    return " ".join(words) or "tasks"

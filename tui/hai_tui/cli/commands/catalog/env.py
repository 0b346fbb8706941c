"""`hai env …`: the commands of haienv, a package of its own, which is loaded by name.

haienv parses its own arguments and reports its own errors.
"""

from __future__ import annotations

from importlib import import_module

import click


@click.command(
    "env",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def env(words: tuple[str, ...]) -> int:
    """Python environments for tasks: layered, locked, shared."""
    return int(import_module("haienv.cli.main").main(list(words), "hai env"))

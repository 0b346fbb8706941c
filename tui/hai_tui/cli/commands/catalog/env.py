"""`hai env …`: the commands of haienv, which is a package of its own and loaded by name.

It reads its own arguments and tells its own errors, so nothing that is said here is taken for ours.
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

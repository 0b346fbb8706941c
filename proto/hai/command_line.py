"""Functions that the commands `hai`, `haienv` and `hai-sync` share: a lazy group of commands, and closed pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """A group that imports a command only when it is used. Help and completion import no commands.

    `targets` maps the name of a command to `module:attribute` below `package`. `summary` returns one sentence about
    the command of a name.
    """

    def __init__(
        self,
        *,
        package: str,
        targets: Mapping[str, str],
        summary: Callable[[str], str],
        **attrs: Any,
    ) -> None:
        super().__init__(**attrs)
        self.package = package
        self.targets = targets
        self.summary = summary

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `targets`."""
        return list(self.targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None if it does not exist."""
        if cmd_name not in self.targets:
            return None
        module, attribute = self.targets[cmd_name].split(":")
        found = getattr(import_module(f"{self.package}.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names with their summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(name)) for name in self.targets])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with the text."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.targets if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self.summary(name)) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


def closed_pipe_exit_code() -> int:
    """Discard the buffer of stdout, and return the exit code for a closed pipe: 128 + SIGPIPE.

    For example, `hai list | head` closes the pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141

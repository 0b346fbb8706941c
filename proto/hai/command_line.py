"""What the commands `hai`, `haienv` and `hai-sync` share: a lazy group of commands, and the end of a closed pipe."""

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
    """Imports a command when it is used, so that help and completion import none.

    `targets`: where each command is, as `module:attribute` below `package`. `summary`: one sentence about it.
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
        """Names in the order of the table."""
        return list(self.targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.targets:
            return None
        module, attribute = self.targets[cmd_name].split(":")
        found = getattr(import_module(f"{self.package}.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and sentences."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(name)) for name in self.targets])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that begin so."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.targets if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self.summary(name)) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


def closed_pipe_exit_code() -> int:
    """For `hai list | head`: discards what is still in the buffer of stdout. The exit code is 128 + SIGPIPE."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141

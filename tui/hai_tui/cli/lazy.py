"""A group whose commands are imported when they are used, so that `hai --help` imports none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.messages import text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives (module:name) and under which heading it is listed."""

    name: str
    home: str
    section: str

    @property
    def summary(self) -> str:
        """One sentence, without importing the command."""
        return text(f"cmd.{self.name}")

    def load(self) -> click.Command:
        """Import the command."""
        module, attribute = self.home.split(":")
        command = getattr(import_module(f"hai_tui.cli.commands.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    """Commands of a table, listed by section."""

    def __init__(self, *, entries: Sequence[Entry], **attrs: Any) -> None:
        super().__init__(**attrs)
        self.entries = {entry.name: entry for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        entry = self.entries.get(cmd_name)
        return entry.load() if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; an unknown command is answered with what does it here, or the nearest ones."""
        name = args[0]
        if name not in self.entries and not name.startswith("-") and not ctx.resilient_parsing:
            raise self._unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> click.UsageError:
        from hai_tui.cli.migration_hints import SAID_HERE

        if name in SAID_HERE:
            told = f"no such command {name!r}; here that is `{SAID_HERE[name]}`"
            return click.UsageError(told, ctx=ctx)
        return click.NoSuchCommand(name, possibilities=self.entries, ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section per heading."""
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [(e.name, e.summary) for e in self.entries.values() if e.section == section]
            with formatter.section(text(f"section.{section}")):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that begin so, without importing the commands."""
        from click.shell_completion import CompletionItem

        found = [e for e in self.entries.values() if e.name.startswith(incomplete)]
        commands = [CompletionItem(e.name, help=e.summary) for e in found]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

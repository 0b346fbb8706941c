"""The group of all commands of `hai`: sections in its help, and hints for commands of other systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from hai.command_line import LazyGroup
from hai_tui.i18n import text


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives (module:name) and under which heading it is listed."""

    name: str
    home: str
    section: str


def summary(name: str) -> str:
    """One sentence about a command."""
    return text(f"cmd.{name}")


class HaiCommands(LazyGroup):
    """The commands of `hai`, listed by section."""

    def __init__(self, *, entries: Sequence[Entry], **attrs: Any) -> None:
        targets = {entry.name: entry.home for entry in entries}
        super().__init__(package="hai_tui.cli.commands", targets=targets, summary=summary, **attrs)
        self._entries = entries

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; an unknown command is answered with what does it here, or the nearest ones."""
        name = args[0]
        if name not in self.targets and not name.startswith("-") and not ctx.resilient_parsing:
            raise self._unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> click.UsageError:
        from hai_tui.cli.migration_hints import EQUIVALENTS

        if name in EQUIVALENTS:
            message = f"no such command {name!r}; here that is `{EQUIVALENTS[name]}`"
            return click.UsageError(message, ctx=ctx)
        return click.NoSuchCommand(name, possibilities=self.targets, ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section per heading."""
        for section in dict.fromkeys(entry.section for entry in self._entries):
            names = [entry.name for entry in self._entries if entry.section == section]
            with formatter.section(text(f"section.{section}")):
                formatter.write_dl([(name, summary(name)) for name in names])

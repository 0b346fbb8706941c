"""The base classes of commands: the options that all of them take, and the layout of help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hai_tui.cli.settings import FORMATS, Settings
from hai_tui.i18n import text


def _store_in_settings(field: str, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a callback that stores the value of an option in the settings if it was given."""

    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        settings = ctx.find_object(Settings)
        if settings is not None and value not in (None, False):
            setattr(settings, field, convert(value))

    return store


def _split_names(value: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in value.split(",") if name.strip())


def _complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    from hai_tui.cli.completion import (
        complete_profiles,  # imported only after Tab: every command loads this module
    )

    return complete_profiles(ctx, param, incomplete)


def _option(*names: str, **attrs: Any) -> click.Option:
    return click.Option(names, expose_value=False, **attrs)


COMMON = (
    _option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        callback=_store_in_settings("output"),
        help="Output format.",
    ),
    _option(
        "--json",
        is_flag=True,
        callback=_store_in_settings("output", lambda _: "json"),
        help="-o json.",
    ),
    _option(
        "-q",
        "--quiet",
        is_flag=True,
        callback=_store_in_settings("quiet"),
        help="Print only identifiers.",
    ),
    _option(
        "--no-color",
        is_flag=True,
        callback=_store_in_settings("color", lambda _: False),
        help="No colours.",
    ),
    _option(
        "--profile",
        metavar="NAME",
        callback=_store_in_settings("profile"),
        shell_complete=_complete_profiles,
        help="Which server to use.",
    ),
    _option(
        "--debug",
        is_flag=True,
        callback=_store_in_settings("debug"),
        help="Print tracebacks of errors.",
    ),
)
"""The options of every command."""

TABLE = (
    _option(
        "--no-headers",
        is_flag=True,
        callback=_store_in_settings("headers", lambda _: False),
        help="Print tables without headers.",
    ),
    _option(
        "--columns",
        metavar="A,B",
        callback=_store_in_settings("columns", _split_names),
        help="Columns to print.",
    ),
)
"""The further options of commands that print a table."""


class HaiCommand(click.Command):
    """A command with the common options, which its help lists in a section of their own."""

    tables = False

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **attrs)

    @property
    def common(self) -> tuple[click.Option, ...]:
        """The options that this command shares with others."""
        return (*COMMON, *TABLE) if self.tables else COMMON

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of the command, then the common options."""
        return [*super().get_params(ctx), *self.common]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command, then the section of common options."""
        command_options = [p for p in super().get_params(ctx) if not isinstance(p, click.Argument)]
        for title, params in (
            ("Options", command_options),
            (text("section.common"), [*self.common]),
        ):
            records = [r for p in params if (r := p.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class TableCommand(HaiCommand):
    """A command that prints a table."""

    tables = True


class HaiGroup(click.Group):
    """A group of commands, such as `hai config`."""

    command_class = HaiCommand

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **attrs)

"""The base of every command: options that all of them take, and help in one shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hai_tui.cli.settings import FORMATS, Settings
from hai_tui.i18n import text


def _sets(field: str, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """A callback that stores an option's value in the settings, when it was given."""

    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        settings = ctx.find_object(Settings)
        if settings is not None and value not in (None, False):
            setattr(settings, field, convert(value))

    return store


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in value.split(",") if name.strip())


def _profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    from hai_tui.cli.completion import profiles  # not before a Tab: every command comes by here

    return profiles(ctx, param, incomplete)


def _option(*names: str, **attrs: Any) -> click.Option:
    return click.Option(names, expose_value=False, **attrs)


COMMON = (
    _option("-o", "--output", type=click.Choice(FORMATS), callback=_sets("output"), help="Format."),
    _option("--json", is_flag=True, callback=_sets("output", lambda _: "json"), help="-o json."),
    _option("-q", "--quiet", is_flag=True, callback=_sets("quiet"), help="Only identifiers."),
    _option(
        "--no-color", is_flag=True, callback=_sets("color", lambda _: False), help="No colours."
    ),
    _option(
        "--profile",
        metavar="NAME",
        callback=_sets("profile"),
        shell_complete=_profiles,
        help="Which server to use.",
    ),
    _option("--debug", is_flag=True, callback=_sets("debug"), help="Show a trace of errors."),
)
"""Taken by every command."""

TABLE = (
    _option(
        "--no-headers",
        is_flag=True,
        callback=_sets("headers", lambda _: False),
        help="Leave out the first line of tables.",
    ),
    _option("--columns", metavar="A,B", callback=_sets("columns", _names), help="Which columns."),
)
"""Taken by commands that print a table."""


class HaiCommand(click.Command):
    """A command that takes the common options and shows them apart in its help."""

    tables = False

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **attrs)

    @property
    def common(self) -> tuple[click.Option, ...]:
        """The options that this command has in common with others."""
        return (*COMMON, *TABLE) if self.tables else COMMON

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Own parameters, then the common ones."""
        return [*super().get_params(ctx), *self.common]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Own options first, the common ones in a section of their own."""
        own_parameters = [p for p in super().get_params(ctx) if not isinstance(p, click.Argument)]
        for title, params in ((_OPTIONS, own_parameters), (text("section.common"), [*self.common])):
            records = [r for p in params if (r := p.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


_OPTIONS = "Options"


class TableCommand(HaiCommand):
    """A command that prints a table."""

    tables = True


class HaiGroup(click.Group):
    """A family of commands, such as `hai config …`."""

    command_class = HaiCommand

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **attrs)

"""Provides what all commands share: common options, output, confirmation, and look-up of environments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hai.redaction import redact, redact_values
from haienv.errors import UsageError
from haienv.names import Reference, parse_reference
from haienv.store.layout import Home
from haienv.store.registry import Environment, find_by_reference, list_environments

if TYPE_CHECKING:
    from haienv.backends.uv import Uv
    from haienv.layers.plan import Step


FILE = click.Path(exists=True, dir_okay=False)
"""The type of options and arguments that name a file to read."""


@dataclass(slots=True)
class Settings:
    """The values of the common options, and functions that print in the selected format."""

    json: bool = False
    quiet: bool = False

    def print_result(self, value: object, text: str) -> None:
        """Print the value as JSON, or the text, without credentials."""
        if self.json:
            click.echo(json.dumps(redact_values(value), indent=2, ensure_ascii=False))
        elif text:
            click.echo(redact(text))

    def print_note(self, text: str) -> None:
        """Print a note for people to standard error, unless notes are off or the output is JSON."""
        if text and not self.quiet and not self.json:
            click.echo(redact(text), err=True)


def _get_settings(ctx: click.Context) -> Settings:
    return ctx.ensure_object(Settings)


def _set_json(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if value in (True, "json"):
        _get_settings(ctx).json = True


def _set_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _get_settings(ctx).quiet = True


COMMON = (
    click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=_set_json, help="Print JSON."
    ),
    click.Option(
        ["-o", "--output"],
        type=click.Choice(("table", "json")),
        expose_value=False,
        callback=_set_json,
        help="Output format.",
    ),
    click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_set_quiet,
        help="Print no notes.",
    ),
    click.Option(["--debug"], is_flag=True, expose_value=False, help="Print tracebacks of errors."),
)


class EnvCommand(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **attrs)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of the command, then the common ones."""
        return [*super().get_params(ctx), *COMMON]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with settings even if none of the common options was given."""
        _get_settings(ctx)
        return super().invoke(ctx)


class EnvGroup(click.Group):
    """A group of commands, such as `haienv config …`."""

    command_class = EnvCommand

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **attrs)


def parse_reference_argument(text: str, user: str | None = None) -> Reference:
    """Parse NAME or NAME[USER]. `.` means the active environment."""
    if text != ".":
        return parse_reference(text, user)
    name = os.environ.get("HF_ENV_NAME")
    if not name:
        raise UsageError("no environment is active", "name one, or run `source haienv NAME` first")
    return Reference(name, os.environ.get("HF_ENV_OWNER", ""))


def find_environment(text: str, user: str | None = None) -> tuple[Home, Environment]:
    """Find an environment, and the Home with its root."""
    home = Home.from_environ()
    environment = find_by_reference(home, parse_reference_argument(text, user))
    return home.at(environment.root), environment


def find_own_environment(text: str) -> tuple[Home, Environment]:
    """Find an environment to change. A name without a user means the caller's.

    Environments of other users are found as well, so that the operation can say why it refuses them.
    """
    home = Home.from_environ()
    reference = parse_reference_argument(text)
    if not reference.owner:
        reference = Reference(reference.name, home.user)
    return home, find_by_reference(home, reference)


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of environments that begin with what the user has typed."""
    home = Home.from_environ()
    names = (e.name if e.owner == home.user else str(e) for e in list_environments(home))
    return [name for name in names if name.startswith(incomplete)]


def require_confirmation(question: str, yes: bool) -> None:
    """Ask for confirmation, unless `yes` is set. Raise UsageError without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to confirm", "add --yes")
    click.confirm(question, abort=True, err=True)


def source_option(function: Any) -> Any:
    """Add the option --from, for files with requirements, to a command."""
    return click.option(
        "--from",
        "sources",
        multiple=True,
        metavar="FILE",
        type=FILE,
        help="requirements.txt, pyproject.toml, environment.yml, or (for a new one) a lock.",
    )(function)


def index_options(function: Any) -> Any:
    """Add the options for package sources to a command."""
    for option in (
        click.option("--offline", is_flag=True, help="Use only packages in the cache."),
        click.option("--no-index", is_flag=True, help="Use only --find-links."),
        click.option(
            "--find-links", multiple=True, metavar="DIR|URL", help="Also search wheels there."
        ),
        click.option(
            "--index", "index_url", metavar="URL", default="", help="Index to use instead of PyPI."
        ),
    ):
        function = option(function)
    return function


def make_installer(home: Home, options: dict[str, Any]) -> Uv:
    """Return the installer for the values of `index_options`, and remove these values from `options`."""
    from haienv.backends.uv import Index, Uv

    return Uv(
        home,
        Index(
            options.pop("index_url"),
            tuple(_absolute_location(location) for location in options.pop("find_links")),
            options.pop("no_index"),
            options.pop("offline"),
        ),
    )


def _absolute_location(location: str) -> str:
    return location if "://" in location else os.path.abspath(location)


def steps_document(steps: Sequence[Step]) -> list[dict[str, object]]:
    """Return the JSON document of a plan."""
    return [
        {
            "action": s.action.value,
            "name": s.name,
            "version": s.version,
            "before": s.before,
            "needed_by": list(s.needed_by),
        }
        for s in steps
    ]

"""Shared by all commands: common options, output, confirmation, and lookup of environments."""

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
from haienv.store.layout import Home, home
from haienv.store.registry import Environment, find, list_all

if TYPE_CHECKING:
    from haienv.backends.uv import Uv
    from haienv.layers.plan import Step


FILE = click.Path(exists=True, dir_okay=False)
"""An option or argument that is a file to read."""


@dataclass(slots=True)
class Settings:
    """The values of the common options, and output in the selected format."""

    json: bool = False
    quiet: bool = False

    def answer(self, value: object, text: str) -> None:
        """Print the result without credentials: the value as JSON, or the text."""
        if self.json:
            click.echo(json.dumps(redact_values(value), indent=2, ensure_ascii=False))
        elif text:
            click.echo(redact(text))

    def note(self, sentence: str) -> None:
        """Print a sentence for people to standard error."""
        if sentence and not self.quiet and not self.json:
            click.echo(redact(sentence), err=True)


def _settings(ctx: click.Context) -> Settings:
    return ctx.ensure_object(Settings)


def _json(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if value in (True, "json"):
        _settings(ctx).json = True


def _quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _settings(ctx).quiet = True


COMMON = (
    click.Option(["--json"], is_flag=True, expose_value=False, callback=_json, help="Print JSON."),
    click.Option(
        ["-o", "--output"],
        type=click.Choice(("table", "json")),
        expose_value=False,
        callback=_json,
        help="Output format.",
    ),
    click.Option(
        ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_quiet, help="Print no notes."
    ),
    click.Option(["--debug"], is_flag=True, expose_value=False, help="Print tracebacks of errors."),
)


class EnvCommand(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **attrs)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters of the command, then the common ones."""
        return [*super().get_params(ctx), *COMMON]

    def invoke(self, ctx: click.Context) -> Any:
        """Make sure that settings exist, however the command was called."""
        _settings(ctx)
        return super().invoke(ctx)


class EnvGroup(click.Group):
    """A group of commands, such as `haienv config …`."""

    command_class = EnvCommand

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **attrs)


def reference(text: str, user: str | None = None) -> Reference:
    """Parse NAME or NAME[USER]; `.` is the active environment."""
    if text != ".":
        return parse_reference(text, user)
    name = os.environ.get("HF_ENV_NAME")
    if not name:
        raise UsageError("no environment is active", "name one, or run `source haienv NAME` first")
    return Reference(name, os.environ.get("HF_ENV_OWNER", ""))


def find_environment(text: str, user: str | None = None) -> tuple[Home, Environment]:
    """Find an environment, and the Home with its root."""
    here = home()
    found = find(here, reference(text, user))
    return here.at(found.root), found


def own_environment(text: str) -> tuple[Home, Environment]:
    """Find an environment to change; the name alone means the caller's. Others are found too, to be refused later."""
    here = home()
    named = reference(text)
    return here, find(here, named if named.owner else Reference(named.name, here.user))


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completions for a name."""
    here = home()
    environments = [e.name if e.owner == here.user else str(e) for e in list_all(here)]
    return [name for name in environments if name.startswith(incomplete)]


def require_confirmation(question: str, yes: bool) -> None:
    """Ask for confirmation; without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to confirm", "add --yes")
    click.confirm(question, abort=True, err=True)


def source_option(function: Any) -> Any:
    """The option --from: files with requirements."""
    return click.option(
        "--from",
        "sources",
        multiple=True,
        metavar="FILE",
        type=FILE,
        help="requirements.txt, pyproject.toml, environment.yml, or (for a new one) a lock.",
    )(function)


def index_options(function: Any) -> Any:
    """Options for package sources."""
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


def installer(here: Home, options: dict[str, Any]) -> Uv:
    """The installer with the values of `index_options`, which are removed from the options."""
    from haienv.backends.uv import Index, Uv

    return Uv(
        here,
        Index(
            options.pop("index_url"),
            tuple(_absolute(location) for location in options.pop("find_links")),
            options.pop("no_index"),
            options.pop("offline"),
        ),
    )


def _absolute(location: str) -> str:
    return location if "://" in location else os.path.abspath(location)


def steps_dict(steps: Sequence[Step]) -> list[dict[str, object]]:
    """A plan as JSON values."""
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

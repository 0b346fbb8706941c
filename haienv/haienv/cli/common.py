"""What all commands have in common: options, the way answers are printed, questions that scripts never meet."""

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
from haienv.store.registry import Environment, find

if TYPE_CHECKING:
    from haienv.backends.uv import Uv
    from haienv.layers.plan import Step


FILE = click.Path(exists=True, dir_okay=False)
"""An option or argument that is a file to read."""


@dataclass(slots=True)
class Settings:
    """Filled in by the common options, then only read."""

    json: bool = False
    quiet: bool = False

    def answer(self, value: object, text: str) -> None:
        """The result, without credentials: for a program, or for a person."""
        if self.json:
            click.echo(json.dumps(redact_values(value), indent=2, ensure_ascii=False))
        elif text:
            click.echo(redact(text))

    def note(self, sentence: str) -> None:
        """Something for a person, beside the result."""
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
    click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=_json, help="For programs."
    ),
    click.Option(
        ["-o", "--output"],
        type=click.Choice(("table", "json")),
        expose_value=False,
        callback=_json,
        help="Format.",
    ),
    click.Option(
        ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_quiet, help="No notes."
    ),
    click.Option(["--debug"], is_flag=True, expose_value=False, help="Show a trace of errors."),
)


class EnvCommand(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **attrs)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Own parameters, then the common ones."""
        return [*super().get_params(ctx), *COMMON]

    def invoke(self, ctx: click.Context) -> Any:
        """With settings, however it was reached."""
        _settings(ctx)
        return super().invoke(ctx)


class EnvGroup(click.Group):
    """A family of commands, such as `haienv config …`."""

    command_class = EnvCommand

    def __init__(self, *args: Any, **attrs: Any) -> None:
        attrs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **attrs)


def reference(text: str, user: str | None = None) -> Reference:
    """NAME or NAME[USER]; `.` is the active environment."""
    if text != ".":
        return parse_reference(text, user)
    name = os.environ.get("HF_ENV_NAME")
    if not name:
        raise UsageError("no environment is active", "give its name, or `source haienv NAME` first")
    return Reference(name, os.environ.get("HF_ENV_OWNER", ""))


def environment(text: str, user: str | None = None) -> tuple[Home, Environment]:
    """The environment that is meant, and where."""
    here = home()
    found = find(here, reference(text, user))
    return here.at(found.root), found


def own_environment(text: str) -> tuple[Home, Environment]:
    """An environment of the caller's in the first root; of others, or elsewhere, only to be refused."""
    here = home()
    named = reference(text)
    return here, find(here, named if named.owner else Reference(named.name, here.user))


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names that begin so, for completion."""
    from haienv.store.registry import list_all

    here = home()
    environments = [e.name if e.owner == here.user else str(e) for e in list_all(here)]
    return [name for name in environments if name.startswith(incomplete)]


def require_confirmation(question: str, yes: bool) -> None:
    """Ask a person; a script must have said --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is there to say so", "add --yes")
    click.confirm(question, abort=True, err=True)


def source_option(function: Any) -> Any:
    """Files that say what is wanted; haienv.requirements.requirement_set tells them by their names."""
    return click.option(
        "--from",
        "sources",
        multiple=True,
        metavar="FILE",
        type=FILE,
        help="requirements.txt, pyproject.toml, environment.yml, or (for a new one) a lock.",
    )(function)


def index_options(function: Any) -> Any:
    """Where packages come from."""
    for option in (
        click.option("--offline", is_flag=True, help="Use what is in the cache."),
        click.option("--no-index", is_flag=True, help="Only --find-links."),
        click.option(
            "--find-links", multiple=True, metavar="DIR|URL", help="Look for wheels there too."
        ),
        click.option("--index", "index_url", metavar="URL", default="", help="Instead of PyPI."),
    ):
        function = option(function)
    return function


def installer(here: Home, options: dict[str, Any]) -> Uv:
    """The installer with what `index_options` gave; they are taken out of the options."""
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
    """A plan for programs."""
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

"""Reads the options of commands about containers, and asks before files are removed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.prompts import confirm
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.tasks.container_spec import ContainerOptions


def container_options(name: str, options: Mapping[str, Any]) -> ContainerOptions:
    """Return the options of the command line as the client takes them."""
    from hai.client.tasks.container_spec import ContainerOptions
    from hai_tui.cli.submission.options import variables

    chosen = {key: value for key, value in options.items() if key != "env" and value is not None}
    return ContainerOptions(name=name, variables=variables((), options["env"]), **chosen)


def service_line_pattern(names: Sequence[str], service: str) -> re.Pattern[str]:
    """Return a pattern for the log lines of one service, or of all. Such a line begins with `[SERVICE]`. Raise
    UsageError.
    """
    if service and service not in names:
        available = ", ".join(names) or "none"
        raise click.UsageError(f"there is no service {service!r}; there are: {available}")
    candidates = [service] if service else names
    return re.compile(rf"^\[(?:{'|'.join(map(re.escape, candidates))})\] ")


def confirm_removal(ids: Sequence[int]) -> bool:
    """Ask at a terminal. Elsewhere raise UsageError, because --yes is missing."""
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError("this removes files; say --yes, or --keep-files")
    return confirm(text("container.confirm", ids=", ".join(map(str, ids))))

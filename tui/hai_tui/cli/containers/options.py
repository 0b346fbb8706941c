"""What commands about containers ask and filter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.confirm import confirmed
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.tasks.container_spec import ContainerOptions


def container_options(name: str, options: Mapping[str, Any]) -> ContainerOptions:
    """What was chosen on the command line."""
    from hai.client.tasks.container_spec import ContainerOptions
    from hai_tui.cli.submission.options import variables

    chosen = {key: value for key, value in options.items() if key != "env" and value is not None}
    return ContainerOptions(name=name, variables=variables((), options["env"]), **chosen)


def printed_by(names: Sequence[str], service: str) -> re.Pattern[str]:
    """Lines of a service, or of all: they begin with its name. Raises UsageError."""
    if service and service not in names:
        available = ", ".join(names) or "none"
        raise click.UsageError(f"there is no service {service!r}; there are: {available}")
    candidates = [service] if service else names
    return re.compile(rf"^\[(?:{'|'.join(map(re.escape, candidates))})\] ")


def agreed(ids: Sequence[int]) -> bool:
    """Ask at a terminal; elsewhere --yes must have been given."""
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError("this removes files; say --yes, or --keep-files")
    return confirmed(text("container.confirm", ids=", ".join(map(str, ids))))

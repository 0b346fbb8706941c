"""`hai admin snapshot`: the state of a live scheduler, for `hai simulate` and for bug reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hai.host.atomic_write import replacing
from hai_tui.cli.command import HaiGroup
from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings, with_client
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client


@click.group("admin", cls=HaiGroup)
def admin() -> None:
    """Inspect a server (operators)."""


@admin.command("snapshot", short_help="Write the state of the scheduler.")
@click.option("--out", metavar="FILE", type=click.Path(), help="Write to a file; else to stdout.")
@click.option("--anonymize", is_flag=True, help="Give users and names of tasks pseudonyms.")
@with_client
async def snapshot(settings: Settings, client: Client, out: str | None, anonymize: bool) -> None:
    """Write the state of the scheduler: nodes, tasks, quotas, settings, run times of ended tasks.

    The output is JSON, regardless of --output, and contains no programs,
    variables or tokens. `hai simulate` reads it. With --anonymize users are
    u1, u2, … and names of tasks x1, x2, …, in alphabetical order.

    \b
    Examples:
      hai admin snapshot --out cluster.json
      hai admin snapshot --anonymize | gzip > cluster.json.gz
      hai simulate cluster.json --nodes 64 --nodes 96
    """
    with _open_output(out) as write:
        async with aclosing(client.nodes.snapshot(anonymous=anonymize)) as parts:
            async for part in parts:
                write(part)
    if out:
        note(settings, text("snapshot.done", file=out))


@contextmanager
def _open_output(out: str | None) -> Iterator[Callable[[bytes], object]]:
    """Write to standard output, or to a file that only its owner can read and that appears when it is complete."""
    if not out or out == "-":
        yield lambda part: sys.stdout.write(part.decode("ascii"))
        return
    try:
        with replacing(Path(out)) as file:
            yield file.write
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror}") from error

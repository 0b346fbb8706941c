"""`haiworkspace check-ignore PATH…`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from hai.client.errors import UsageError
from hai_sync.cli.options import common, filter_of, filters
from hai_sync.cli.reporting import event, printable
from hai_sync.core.names import is_own
from hai_sync.scan import Known, ignore_of, scan
from hai_sync.workspace_dir import find


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@filters
@common
def check_ignore(paths: tuple[str, ...], **options: Any) -> int:
    """Tell which rule leaves a path out, with its file and line. Exits with 1 if none does."""
    place = find()
    filter = filter_of(options)
    ignore = ignore_of(filter, scan(place.root, Known(), filter).levels)
    found = 0
    for path in paths:
        at = Path(os.path.abspath(path))
        if not at.is_relative_to(place.root):
            raise UsageError(f"{path} does not lie in {place.root}")
        relative = str(at.relative_to(place.root))
        why = "its own files are never synced" if is_own(relative) else ""
        if not why and (told := ignore.why(relative, at.is_dir())):
            top, rule = told
            why = f"{rule.source}:{rule.line}: {rule.text}" + (
                f" ({top})" if top != relative else ""
            )
        found += bool(why)
        if options["as_json"] or options["output"] == "json":
            event("ignored", path=relative, ignored=bool(why), why=why)
        elif why:
            click.echo(printable(relative) + "\t" + printable(why))
    return 0 if found else 1

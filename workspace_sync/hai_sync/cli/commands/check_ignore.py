"""`haiworkspace check-ignore PATH…`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from hai.client.errors import UsageError
from hai_sync.cli.options import common, filter_of, filters, wants_json
from hai_sync.cli.reporting import event, printable
from hai_sync.core.names import is_private
from hai_sync.scan import ScanCache, ignore_of, scan
from hai_sync.workspace_dir import find


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@filters
@common
def check_ignore(paths: tuple[str, ...], **options: Any) -> int:
    """Tell which rule leaves a path out, with its file and line. Exits with 1 if none does."""
    workspace = find()
    filter = filter_of(options)
    ignore = ignore_of(filter, scan(workspace.root, ScanCache(), filter).rule_sets)
    found = 0
    for path in paths:
        at = Path(os.path.abspath(path))
        if not at.is_relative_to(workspace.root):
            raise UsageError(f"{path} does not lie in {workspace.root}")
        relative = str(at.relative_to(workspace.root))
        why = "its own files are never synced" if is_private(relative) else ""
        if not why and (match := ignore.explain(relative, at.is_dir())):
            top, rule = match
            why = f"{rule.source}:{rule.line}: {rule.text}" + (
                f" ({top})" if top != relative else ""
            )
        found += bool(why)
        if wants_json(options):
            event("ignored", path=relative, ignored=bool(why), why=why)
        elif why:
            click.echo(printable(relative) + "\t" + printable(why))
    return 0 if found else 1

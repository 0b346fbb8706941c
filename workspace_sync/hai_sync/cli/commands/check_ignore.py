"""The command `haiworkspace check-ignore`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from hai.client.errors import UsageError
from hai_sync.cli.options import build_filter, common_options, filter_options, wants_json
from hai_sync.cli.reporting import print_event, printable
from hai_sync.core.names import is_private
from hai_sync.scan import ScanCache, build_ignore, scan
from hai_sync.workspace_dir import find_workspace


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@filter_options
@common_options
def check_ignore(paths: tuple[str, ...], **options: Any) -> int:
    """Show which rule ignores a path, with its file and line. The exit code is 1 if no path is ignored."""
    workspace = find_workspace()
    filter = build_filter(options)
    ignore = build_ignore(filter, scan(workspace.root, ScanCache(), filter).rule_sets)
    found = 0
    for path in paths:
        at = Path(os.path.abspath(path))
        if not at.is_relative_to(workspace.root):
            raise UsageError(f"{path} is not in the workspace {workspace.root}")
        relative = str(at.relative_to(workspace.root))
        why = "the files of the workspace itself are never synced" if is_private(relative) else ""
        if not why and (match := ignore.explain(relative, at.is_dir())):
            top, rule = match
            why = f"{rule.source}:{rule.line}: {rule.text}" + (
                f" ({top})" if top != relative else ""
            )
        found += bool(why)
        if wants_json(options):
            print_event("ignored", path=relative, ignored=bool(why), why=why)
        elif why:
            click.echo(printable(relative) + "\t" + printable(why))
    return 0 if found else 1

"""`haiworkspace push`."""

from __future__ import annotations

from typing import Any

import click

from hai_sync.cli.options import transfer
from hai_sync.cli.transfer_command import transfer_files
from hai_sync.core.rules import Mode


@click.command()
@transfer
def push(**options: Any) -> int:
    """Bring what you have changed to the cluster.

    What tasks wrote there stays; --delete removes it. What both sides have changed is refused and listed."""
    return transfer_files(Mode.PUSH, options)

"""`haiworkspace sync`."""

from __future__ import annotations

from typing import Any

import click

from hai_sync.cli.options import transfer
from hai_sync.cli.transfer_command import transfer_files
from hai_sync.core.rules import Mode


@click.command()
@transfer
def sync(**options: Any) -> int:
    """Push and pull at once."""
    return transfer_files(Mode.SYNC, options)

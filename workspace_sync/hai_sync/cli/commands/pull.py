"""`haiworkspace pull`."""

from __future__ import annotations

from typing import Any

import click

from hai_sync.cli.options import transfer
from hai_sync.cli.transfer_command import transfer_files
from hai_sync.core.rules import Mode


@click.command()
@transfer
def pull(**options: Any) -> int:
    """Bring here what has changed on the cluster.

    What only you have changed stays. Versions that are overwritten are kept: see `restore`."""
    return transfer_files(Mode.PULL, options)

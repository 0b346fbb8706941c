"""`hai down`: stops the server of this machine and everything that it has started."""

from __future__ import annotations

import os
import signal

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import note
from hai_tui.cli.server.local_server import end_leftovers, find_server, home_path, wait_for_exit
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text


@click.command("down", cls=HaiCommand)
@click.option(
    "--home", type=click.Path(file_okay=False), help="Default: $HAI_HOME, or your data directory."
)
@click.option(
    "--timeout", type=float, default=30.0, show_default=True, help="Seconds until it is killed."
)
@click.pass_obj
def down(settings: Settings, home: str | None, timeout: float) -> int:
    """Stop the server of this machine; running programs end, and continue after `hai up`.

    It also ends what a killed server has left running.

    \b
    Examples:
      hai down
      hai down --home /data/hai
    """
    directory = home_path(home)
    if not directory.is_dir():
        note(settings, text("down.none", home=directory))
        return 0
    server = find_server(directory)
    if server:
        note(settings, text("down.stopping", pid=server.pid))
        _stop(settings, server.pid, timeout)
    end_leftovers(directory)
    note(settings, text("down.done") if server else text("down.none", home=directory))
    return 0


def _stop(settings: Settings, pid: int, timeout: float) -> None:
    """Terminate the server; kill it after the timeout."""
    os.kill(pid, signal.SIGTERM)
    if wait_for_exit(pid, timeout):
        return
    os.kill(pid, signal.SIGKILL)  # nothing is lost, because every confirmed change is durable
    wait_for_exit(pid, timeout)
    note(settings, text("down.killed", seconds=timeout))

"""`hai down`: stop the server of this machine and everything that it has started."""

from __future__ import annotations

import os
import signal

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import note
from hai_tui.cli.server.local_server import ended, home_path, running, sweep
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
    """Stop the server of this machine; running programs are ended, and continue after `hai up`.

    It also ends what a server that was killed has left behind.

    \b
    Examples:
      hai down
      hai down --home /data/hai
    """
    directory = home_path(home)
    if not directory.is_dir():
        note(settings, text("down.none", home=directory))
        return 0
    found = running(directory)
    if found:
        note(settings, text("down.stopping", pid=found.pid))
        _stop(settings, found.pid, timeout)
    sweep(directory)
    note(settings, text("down.done") if found else text("down.none", home=directory))
    return 0


def _stop(settings: Settings, pid: int, timeout: float) -> None:
    os.kill(pid, signal.SIGTERM)
    if ended(pid, timeout):
        return
    os.kill(pid, signal.SIGKILL)  # everything that was answered is durable: nothing is lost by it
    ended(pid, timeout)
    note(settings, text("down.killed", seconds=timeout))

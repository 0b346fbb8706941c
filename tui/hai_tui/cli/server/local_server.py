"""The data directory ("home") of a server on this machine, and the process of the server.

The server writes two files there: `server.json` with its address, its pid and perhaps a certificate authority, and
`admin.token`. Another process may have the pid by now. So the pid counts only if the command line of the process is
that of a server with this home.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

MODULE = "hai_backend.main"
"""The server is started as a program and never imported, because its packages may not be installed."""

REQUIRED_MODULE = "sqlalchemy"
"""A package that only the extra [backend] installs. Our own modules are in every wheel."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server."""

    address: str
    pid: int
    ca: str = ""


def home_path(chosen: str | None) -> Path:
    """Return --home, else $HAI_HOME, else the user's data directory."""
    if path := chosen or os.environ.get("HAI_HOME"):
        return Path(path).expanduser().resolve()
    from platformdirs import user_data_path

    return user_data_path("hai")


def find_server(home: Path) -> RunningServer | None:
    """Return the server of this home; None if its process does not run."""
    try:
        fields = json.loads((home / "server.json").read_text("utf-8"))
        server = RunningServer(
            str(fields["address"]), int(fields["pid"]), str(fields.get("ca") or "")
        )
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    return server if is_server_of(server.pid, home) else None


def is_server_of(pid: int, home: Path) -> bool:
    """Return True if the process is a server with this home."""
    try:
        argv = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return False
    is_server = MODULE in argv or any(Path(arg).name == "hai-server" for arg in argv[:2])
    return is_server and any(Path(arg).resolve() == home for arg in argv if os.sep in arg)


def wait_for_exit(pid: int, timeout: float) -> bool:
    """Wait for a process that may not be our child. Return True if it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([handle], [], [], timeout)
        return bool(ready)
    finally:
        os.close(handle)


def command(home: Path, *options: str) -> list[str]:
    """Return the command line of the server, or of a maintenance action on its home."""
    return [sys.executable, "-m", MODULE, "--home", str(home), *options]


def end_leftovers(home: Path) -> None:
    """End all agents and programs of a home without a running server, and write staged checkpoints to disk.

    Print what could not be done. Raise ClickException.
    """
    completed = subprocess.run(
        command(home, "--sweep"), capture_output=True, text=True, check=False
    )
    if completed.returncode:
        output = (completed.stderr or completed.stdout).strip()
        raise click.ClickException(f"agents of {home} may still run: ending them failed: {output}")
    if completed.stderr:
        click.echo(completed.stderr.rstrip(), err=True)


def last_lines(file: Path, start: int, count: int = 15) -> Sequence[str]:
    """Return the last lines that were written to a log since that offset."""
    try:
        with file.open("rb") as log:
            log.seek(start)
            return log.read().decode("utf-8", "replace").splitlines()[-count:]
    except FileNotFoundError:
        return []

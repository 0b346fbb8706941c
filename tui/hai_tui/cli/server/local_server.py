"""The home of a server on this machine, and the process that serves it.

The server leaves two files there: `server.json` with address, pid and perhaps a certificate
authority, and `admin.token`. A pid may have been given to another process since, so it counts only
when the process's command line says that it is our server with this home.
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
"""Run as a program, never imported: the command works without the server's packages."""

NEEDED = "sqlalchemy"
"""Our own modules come with every wheel; what the server runs on comes only with [backend]."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that lives."""

    address: str
    pid: int
    ca: str = ""


def home_path(chosen: str | None) -> Path:
    """--home, else $HAI_HOME, else the user's data directory."""
    if path := chosen or os.environ.get("HAI_HOME"):
        return Path(path).expanduser().resolve()
    from platformdirs import user_data_path

    return user_data_path("hai")


def running(home: Path) -> Running | None:
    """The server of this home, if its process lives."""
    try:
        facts = json.loads((home / "server.json").read_text("utf-8"))
        found = Running(str(facts["address"]), int(facts["pid"]), str(facts.get("ca") or ""))
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    return found if is_ours(found.pid, home) else None


def is_ours(pid: int, home: Path) -> bool:
    """True when the process is a server with this home."""
    try:
        argv = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return False
    is_server = MODULE in argv or any(Path(arg).name == "hai-server" for arg in argv[:2])
    return is_server and any(Path(arg).resolve() == home for arg in argv if os.sep in arg)


def ended(pid: int, timeout: float) -> bool:
    """Wait for a process that may not be our child; True when it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([handle], [], [], timeout)
        return bool(ready)
    finally:
        os.close(handle)


def command(home: Path, *more: str) -> list[str]:
    """The command line of the server, or of a chore that it does for a home."""
    return [sys.executable, "-m", MODULE, "--home", str(home), *more]


def sweep(home: Path) -> None:
    """End every agent and program of a home that no server runs in. Raises ClickException."""
    done = subprocess.run(command(home, "--sweep"), capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise click.ClickException(f"agents of {home} may be left: the sweep failed: {output}")


def last_lines(file: Path, start: int, count: int = 15) -> Sequence[str]:
    """The end of what was written to a log since an offset."""
    try:
        with file.open("rb") as log:
            log.seek(start)
            return log.read().decode("utf-8", "replace").splitlines()[-count:]
    except FileNotFoundError:
        return []

"""A PostgreSQL server that a test may stop. All other tests share the server of `scripts/postgres`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai_backend.launch import processes
from tests.ports import free_port

_BINARIES = "/usr/lib/postgresql"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `url` names a database that exists."""

    url: str
    pid: int

    def pids(self) -> list[int]:
        """Return the process ids of the server and of all its sessions."""
        return [self.pid, *(process.pid for process in processes.descendants(self.pid))]


@contextmanager
def private_postgres() -> Iterator[Postgres]:
    """Skips where Debian's package is not installed."""
    found = sorted(Path(_BINARIES).glob("*/bin"))
    if not found:
        pytest.skip(f"no PostgreSQL below {_BINARIES}: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="hai-postgres-", ignore_cleanup_errors=True) as name:
        directory, root = Path(name), os.getuid() == 0
        as_user = (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if root else []
        )
        if root:
            shutil.chown(directory, "postgres")
        data, port = directory / "data", free_port()
        initdb = [found[-1] / "initdb", "-D", data, "-U", "hai", "-A", "trust", "--no-sync"]
        subprocess.run([*as_user, *initdb], check=True, stdout=subprocess.DEVNULL, cwd=directory)
        control = [*as_user, found[-1] / "pg_ctl", "-D", data, "-w"]
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={directory} -c fsync=off"
        start = [*control, "-l", directory / "log", "-o", options, "start"]
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd=directory)
        try:
            pid = int((data / "postmaster.pid").read_text().split()[0])
            yield Postgres(f"postgresql://hai@127.0.0.1:{port}/postgres", pid)
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, cwd=directory)

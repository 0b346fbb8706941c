"""Real servers for tests and benchmarks: in this process, or in a process of their own, which a test may kill."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asyncpg  # type: ignore[import-untyped]

from hai.client.profile import Profile
from hai_backend.api.server.call_limits import CallLimiter
from hai_backend.config import Settings
from hai_backend.controllers.aio.clock import Clock
from hai_backend.launch.base import Launcher
from hai_backend.launch.local_launcher import sweep
from hai_backend.server.launcher_factory import make_launcher
from hai_backend.server.paths import last_port, save_port
from hai_backend.server.process import Server
from hai_backend.store.connect import open_store
from tests.support.databases import default_database

_START_SECONDS = 300.0  # generous: the machine may be busy with other tests
# The kernel assigns none of these ports to others, so a server finds its port free when it starts again.
_QUIET_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server in this process, and the profile with which an admin connects to it."""

    app: Server
    profile: Profile


@asynccontextmanager
async def running_server(
    home: Path,
    *,
    nodes: int = 4,
    launcher: Launcher | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[RunningServer]:
    """The real server in this process, with processes or, set so, pods; its store is the usual one (databases.py)."""
    home.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - a test may wait for its disk
    async with default_database() as url:
        chosen = Settings(home=home, nodes=nodes, admin="admin", **{"database": url, **settings})
        app = Server(
            chosen, open_store, lambda: launcher or make_launcher(chosen, app.address), clock
        )
        await app.start()
        try:
            token = (chosen.common / "admin.token").read_text()
            yield RunningServer(app, Profile("test", app.address, token, insecure=chosen.insecure))
        finally:
            await app.stop()


class ServerProcess:
    """A server in a process of its own. A test may start and kill it repeatedly; `home` is kept.

    `shared` is the directory that it shares with other servers, as its settings say.
    """

    def __init__(
        self,
        home: Path,
        *flags: str,
        module: str = "hai_backend.main",
        shared: Path | None = None,
    ) -> None:
        self.home = home
        self._shared = shared or home
        self._command = [sys.executable, "-m", module, "--home", str(home), *flags]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str, module: str = "") -> Profile:
        """Start, and return an admin's profile once the server answers. Raises RuntimeError with the end of its log."""
        self.listen(*more, module=module)
        return self.profile()

    def listen(self, *more: str, module: str = "") -> None:
        """Start, and return once the server answers or forwards calls. Raises RuntimeError with the end of its log."""
        where = self.home / "server.json"
        where.unlink(missing_ok=True)
        if not last_port(self.home):
            save_port(self.home, f":{random.choice(_QUIET_PORTS)}")
        command = [*self._command, *more]
        if module:
            command[2] = module
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not where.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log_tail())
            time.sleep(0.005)

    def log_tail(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")[-4000:]

    def profile(self) -> Profile:
        """Return an admin's profile of this server."""
        return Profile("test", self.address(), (self._shared / "admin.token").read_text())

    def address(self) -> str:
        """Return the address on which the server listens."""
        return str(json.loads((self.home / "server.json").read_text())["address"])

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and wait for the exit: SIGTERM stops the server in order, SIGKILL kills it."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(60)

    def sweep(self) -> None:
        """End all agents and programs that still run."""
        subprocess.run([*self._command[:5], "--sweep"], check=True)


@contextmanager
def server_process(*flags: str, home: Path | None = None) -> Iterator[ServerProcess]:
    """A started server in a temporary home, of which nothing is left at the end, or in `home`, which stays."""
    with tempfile.TemporaryDirectory(prefix="hai-", ignore_cleanup_errors=True) as directory:
        home = home or Path(directory)
        home.mkdir(exist_ok=True)
        server = ServerProcess(home, *flags)
        server.start()
        try:
            yield server
        finally:
            if server.running:
                server.end()
            server.sweep()


@contextmanager
def count_streams() -> Iterator[Callable[[], int]]:
    """Counts those of servers that are made meanwhile."""
    made: list[CallLimiter] = []
    begin = CallLimiter.__init__

    def remembered(self: CallLimiter, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    with patch.object(CallLimiter, "__init__", remembered):
        yield lambda: sum(sum(each._streams.values()) for each in made)


class Replicas:
    """Server processes with one database. They share `home`/shared: logs, ranks, secrets and the admin's token."""

    def __init__(self, home: Path, count: int, database: str, *flags: str) -> None:
        self.shared = home / "shared"
        self.database = database
        self.servers = [
            ServerProcess(_home(home, i, database), *flags, shared=self.shared)
            for i in range(count)
        ]

    def start(self) -> None:
        """Start all. Return when all listen and the first leader has created the admin."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(ServerProcess.listen, self.servers))
        while not (self.shared / "admin.token").exists():
            time.sleep(0.01)

    def profile(self, *servers: ServerProcess) -> Profile:
        """Return an admin's profile of these servers, or of all."""
        addresses = ",".join(server.address() for server in servers or self.servers)
        return Profile("test", addresses, (self.shared / "admin.token").read_text())

    async def leader(self) -> ServerProcess:
        """Return the server that is the leader in the database. Waits until one is."""
        connection = await asyncpg.connect(self.database)
        try:
            while True:
                address = await connection.fetchval("SELECT address FROM leader")
                for server in self.servers:
                    if server.running and server.address() == address:
                        return server
                await asyncio.sleep(0.02)
        finally:
            await connection.close()

    def end(self) -> None:
        """Kill all servers, agents and programs."""
        for server in self.servers:
            if server.running:
                assert server.process is not None
                os.kill(server.process.pid, signal.SIGCONT)
                server.end(signal.SIGKILL)
        sweep(self.shared)


def _home(home: Path, index: int, database: str) -> Path:
    own = home / f"server{index}"
    own.mkdir(parents=True)
    settings = f'database = "{database}"\nshared = "{home / "shared"}"\nadmin = "admin"\n'
    (own / "hai.toml").write_text(settings)
    return own

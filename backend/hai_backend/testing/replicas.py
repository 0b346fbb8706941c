"""Several servers on one database and one machine: each has a home of its own, and all a directory in common."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]

from hai.client.profile import Profile
from hai_backend.launch.process import sweep
from hai_backend.testing.server import ServerProcess


class Replicas:
    """`servers` are processes. They share `home`/shared: logs, ranks, the key of run tokens and the admin's token."""

    def __init__(self, home: Path, count: int, database: str, *flags: str) -> None:
        self.shared = home / "shared"
        self.database = database
        self.servers = [
            ServerProcess(_home(home, i, database), *flags, shared=self.shared)
            for i in range(count)
        ]

    def start(self) -> None:
        """Return when all listen, and the first leader has made the admin."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(ServerProcess.listen, self.servers))
        while not (self.shared / "admin.token").exists():
            time.sleep(0.01)

    def profile(self, *servers: ServerProcess) -> Profile:
        """An admin's way to these servers, or to all."""
        addresses = ",".join(server.address() for server in servers or self.servers)
        return Profile("test", addresses, (self.shared / "admin.token").read_text())

    async def leader(self) -> ServerProcess:
        """The server that the database names; waits until there is one."""
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
        """Kill what runs, and every agent and program."""
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

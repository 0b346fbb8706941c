"""A server of the demo's own, in a directory of its own; nothing of it is left afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hai.client.errors import ServerError
from hai.client.profile import Profile

_START_SECONDS = 30.0


@contextmanager
def private_cluster(nodes: int) -> Iterator[tuple[Path, Profile]]:
    """Run a server with so many nodes; at the end, stop it and everything that it started."""
    with TemporaryDirectory(prefix="hai-demo-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        command = [sys.executable, "-m", "hai_backend.main", "--home", str(home)]
        with (home / "server.log").open("wb") as log:
            server = subprocess.Popen([*command, "--nodes", str(nodes)], stdout=log, stderr=log)
        try:
            yield home, _wait_for(server, home)
        finally:
            server.terminate()
            server.wait(timeout=30)
            subprocess.run([*command, "--sweep"], check=False)


def _wait_for(server: subprocess.Popen[bytes], home: Path) -> Profile:
    """server.json is written when the server answers."""
    deadline = time.monotonic() + _START_SECONDS
    where = home / "server.json"
    while not where.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            last = (home / "server.log").read_text(errors="replace")[-2000:]
            raise ServerError(
                f"the demo's server did not start:\n{last}",
                hint="is hai-platform installed with its extra `backend`?",
            )
        time.sleep(0.02)
    address = json.loads(where.read_text())["address"]
    return Profile("demo", address, (home / "admin.token").read_text())

"""Runs a server in a temporary directory for the demo."""

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
    """Run a server with that many nodes. At the end stop it and everything that it started."""
    with TemporaryDirectory(prefix="hai-demo-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        command = [sys.executable, "-m", "hai_backend.main", "--home", str(home)]
        with (home / "server.log").open("wb") as log:
            server = subprocess.Popen([*command, "--nodes", str(nodes)], stdout=log, stderr=log)
        try:
            yield home, _wait_until_ready(server, home)
        finally:
            server.terminate()
            server.wait(timeout=30)
            subprocess.run([*command, "--sweep"], check=False)


def _wait_until_ready(server: subprocess.Popen[bytes], home: Path) -> Profile:
    """Return a profile for the server once it has written server.json, which it does when it is ready."""
    deadline = time.monotonic() + _START_SECONDS
    server_file = home / "server.json"
    while not server_file.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            log_end = (home / "server.log").read_text(errors="replace")[-2000:]
            raise ServerError(
                f"the demo's server did not start:\n{log_end}",
                hint="is hai-platform installed with its extra `backend`?",
            )
        time.sleep(0.02)
    address = json.loads(server_file.read_text())["address"]
    return Profile("demo", address, (home / "admin.token").read_text())

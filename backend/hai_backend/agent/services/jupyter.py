"""Runs JupyterLab as a service, and determines whether it is in use.

JupyterLab listens on a unix socket that processes of other users cannot open. So two containers on one machine cannot
need the same port, and there is no token that could leak. The server's proxy decides who may connect.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from hai_backend.agent.program.program import find_shell
from hai_backend.launch.rank_dirs import LAB_SOCKET
from hai_backend.launch.socket_paths import shorten

_REQUEST_SECONDS = 5.0
_ANSWER_BYTES = 1024 * 1024
# Errors that a missing or unknown answer can raise. Any program of the container may listen on the socket, so the agent
# must not fail.
_NO_ANSWER = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_BUSY = ("busy", "starting", "restarting")
_MISSING = (
    "there is no JupyterLab in this environment: pip install 'hai-platform[jupyter]' there, "
    "then `hai container restart`"
)


class Server:
    """The JupyterLab of a rank. `directory` is that of the rank; `workspace` is the root directory that users see."""

    def __init__(self, directory: Path, workspace: Path, base_url: str) -> None:
        self._workspace = workspace
        self._base_url = base_url or "/"
        self.socket = shorten(directory / LAB_SOCKET)

    def argv(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command line. It contains no secret. It sets a shell for terminals that is not a login shell."""
        settings = {
            "ServerApp.sock": self.socket,
            "ServerApp.sock_mode": "0600",
            "ServerApp.base_url": self._base_url,
            "ServerApp.root_dir": self._workspace,
            "ServerApp.allow_remote_access": True,  # the proxy checks the host
            "ServerApp.open_browser": False,
            "ServerApp.quit_button": False,
            "ServerApp.terminado_settings": {"shell_command": [find_shell(variables)]},
            "ServerApp.allow_root": os.getuid() == 0,
            "IdentityProvider.token": "",
            "PasswordIdentityProvider.hashed_password": "",
        }
        return (
            *("python3", "-m", "jupyterlab"),
            *(f"--{name}={value}" for name, value in settings.items()),
        )

    def variables(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables.

        Layouts are stored in the workspace, so that they are kept when the container is restarted.
        """
        filtered = {
            name: value for name, value in inherited.items() if not name.startswith("JUPYTER_TOKEN")
        }
        layouts = str(self._workspace / ".jupyter" / "lab" / "workspaces")
        return {"JUPYTERLAB_WORKSPACES_DIR": layouts, **filtered}

    def find_fault(self, variables: Mapping[str, str]) -> str:
        """Return a message if JupyterLab cannot start; an empty string if no such fault is found."""
        path = variables.get("PATH", os.defpath)
        return "" if shutil.which("jupyter-lab", path=path) else _MISSING

    async def is_answering(self) -> bool:
        """Return whether JupyterLab answers."""
        try:
            await self._get("api/status")
        except _NO_ANSWER:
            return False
        return True

    async def read_idle_seconds(self) -> float | None:
        """Return the seconds since a kernel or terminal was last active; None if JupyterLab does not answer."""
        try:
            kernels, terminals = await self._get("api/kernels"), await self._get("api/terminals")
            return compute_idle_seconds(kernels, terminals, time.time())
        except _NO_ANSWER:
            return None

    async def _get(self, path: str) -> Any:
        """Send a GET request that does not count as activity, and return the JSON of the answer."""
        async with asyncio.timeout(_REQUEST_SECONDS):
            reader, writer = await asyncio.open_unix_connection(self.socket, limit=_ANSWER_BYTES)
            try:
                writer.write(_request(self._base_url + path))
                head, _, body = (await reader.read(_ANSWER_BYTES)).partition(b"\r\n\r\n")
            finally:
                writer.transport.abort()
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise ValueError("not answered with 200")
        return json.loads(body)


def compute_idle_seconds(
    kernels: Iterable[Mapping[str, Any]], terminals: Iterable[Mapping[str, Any]], now: float
) -> float | None:
    """Compute idle seconds from Jupyter's answers: 0 if a kernel is busy, None without kernels and terminals."""
    kernels = list(kernels)
    if any(kernel.get("execution_state") in _BUSY for kernel in kernels):
        return 0.0
    activity = [datetime.fromisoformat(entry["last_activity"]) for entry in (*kernels, *terminals)]
    return max(0.0, now - max(activity).timestamp()) if activity else None


def _request(path: str) -> bytes:
    return (
        f"GET {path}?no_track_activity=1 HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
    ).encode()

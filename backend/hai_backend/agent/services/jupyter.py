"""JupyterLab as a service: how it is started so that only we reach it, and whether somebody works in it.

It listens on a unix socket of the rank that nobody of another uid can open. So there is no port that two containers on
one machine could both want, and no token that could leak: who may come in is decided by the server's proxy.
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

from hai_backend.agent.program.program import usual_shell
from hai_backend.launch.rank_dirs import LAB_SOCKET
from hai_backend.launch.short_socket import short

_REQUEST_SECONDS = 5.0
_ANSWER_BYTES = 1024 * 1024
# It does not answer, or in a form of its own: whatever runs in a container may, and the rank shall not end of it.
_NO_ANSWER = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_BUSY = ("busy", "starting", "restarting")
_MISSING = (
    "there is no JupyterLab in this environment: pip install 'hai-platform[jupyter]' there, "
    "then `hai container restart`"
)


class Server:
    """The JupyterLab of a rank. `directory` is the rank's, `workspace` what people see."""

    def __init__(self, directory: Path, workspace: Path, base_url: str) -> None:
        self._workspace = workspace
        self._base_url = base_url or "/"
        self.socket = short(directory / LAB_SOCKET)

    def argv(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        """Its command. No secret is in it: there is none. By itself Jupyter takes shells as at a login."""
        settings = {
            "ServerApp.sock": self.socket,
            "ServerApp.sock_mode": "0600",
            "ServerApp.base_url": self._base_url,
            "ServerApp.root_dir": self._workspace,
            "ServerApp.allow_remote_access": True,  # the proxy says which hosts there are
            "ServerApp.open_browser": False,
            "ServerApp.quit_button": False,
            "ServerApp.terminado_settings": {"shell_command": [usual_shell(variables)]},
            "ServerApp.allow_root": os.getuid() == 0,
            "IdentityProvider.token": "",
            "PasswordIdentityProvider.hashed_password": "",
        }
        return (
            *("python3", "-m", "jupyterlab"),
            *(f"--{name}={value}" for name, value in settings.items()),
        )

    def variables(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """A laptop's own Jupyter must not be disturbed, and layouts return with the container."""
        passed_on = {
            name: value for name, value in inherited.items() if not name.startswith("JUPYTER_TOKEN")
        }
        layouts = str(self._workspace / ".jupyter" / "lab" / "workspaces")
        return {"JUPYTERLAB_WORKSPACES_DIR": layouts, **passed_on}

    def missing_program(self, variables: Mapping[str, str]) -> str:
        """What keeps it from starting; empty: nothing that can be seen from here."""
        path = variables.get("PATH", os.defpath)
        return "" if shutil.which("jupyter-lab", path=path) else _MISSING

    async def answers(self) -> bool:
        """Whether Lab can be opened."""
        try:
            await self._get("api/status")
        except _NO_ANSWER:
            return False
        return True

    async def idle_seconds(self) -> float | None:
        """Since a kernel or terminal last did something; 0 while a kernel is busy. None: it does not answer."""
        try:
            kernels, terminals = await self._get("api/kernels"), await self._get("api/terminals")
            return idle_seconds(kernels, terminals, time.time())
        except _NO_ANSWER:
            return None

    async def _get(self, path: str) -> Any:
        """One small GET, marked as not being anybody's doing."""
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


def idle_seconds(
    kernels: Iterable[Mapping[str, Any]], terminals: Iterable[Mapping[str, Any]], now: float
) -> float | None:
    """The same, from Jupyter's answers; None: it has neither kernels nor terminals, so it knows nothing."""
    kernels = list(kernels)
    if any(kernel.get("execution_state") in _BUSY for kernel in kernels):
        return 0.0
    activity = [datetime.fromisoformat(one["last_activity"]) for one in (*kernels, *terminals)]
    return max(0.0, now - max(activity).timestamp()) if activity else None


def _request(path: str) -> bytes:
    return (
        f"GET {path}?no_track_activity=1 HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
    ).encode()

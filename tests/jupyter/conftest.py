"""Fixtures: a real platform and a real Jupyter server for the tests of a file, and a client of the handlers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from hai.client.client import Client
from hai.client.profile import Profile
from tests.jupyter.lab import Lab, start_lab, write_profile
from tests.support.servers import ServerProcess

_PATIENCE = 20.0


@dataclass(frozen=True)
class JupyterSetup:
    """A platform, a Jupyter server that uses it, and the directory of both."""

    home: Path
    server: ServerProcess
    profile: Profile
    lab: Lab

    @property
    def root(self) -> Path:
        """What the file browser shows."""
        return self.lab.root


@dataclass(frozen=True)
class Answer:
    """The answer of a handler."""

    code: int
    data: Any
    text: str


class Page:
    """Sends requests to the handlers like the front end."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._ask("GET", path, None, headers)

    async def post(self, path: str, body: object, **headers: str) -> Answer:
        return await self._ask("POST", path, json.dumps(body), headers)

    async def post_text(self, path: str, body: str) -> Answer:
        return await self._ask("POST", path, body, {})

    async def delete(self, path: str, **headers: str) -> Answer:
        return await self._ask("DELETE", path, None, headers)

    async def login(self) -> str:
        """Return the cookies that a browser has after its first visit."""
        cookies: dict[str, str] = {}
        for url in (f"{self._lab.url}login", f"{self._lab.url}api/status?token={self._lab.token}"):
            sent = {"Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())}
            request = HTTPRequest(url, headers=sent, follow_redirects=False)
            answer = await AsyncHTTPClient().fetch(request, raise_error=False)
            for line in answer.headers.get_list("Set-Cookie"):
                name, _, value = line.partition(";")[0].partition("=")
                cookies[name] = value
        return "; ".join(f"{name}={value}" for name, value in cookies.items())

    @asynccontextmanager
    async def socket(self, path: str) -> AsyncIterator[Callable[[], Any]]:
        """A websocket: each call waits for the next frame; None when it was closed."""
        url = self._lab.url.replace("http", "ws", 1) + f"hai_jupyter/{path}"
        request = HTTPRequest(url, headers={"Authorization": f"token {self._lab.token}"})
        connection = await websocket_connect(request)

        told: str | bytes | None = ""

        async def frame() -> Any:
            nonlocal told
            told = await asyncio.wait_for(connection.read_message(), _PATIENCE)
            return None if told is None else json.loads(told)

        try:
            yield frame
        finally:
            connection.close()
            # Until the other side has agreed. An earlier end of the loop would leak the socket.
            while told is not None:
                told = await asyncio.wait_for(connection.read_message(), _PATIENCE)

    async def _ask(self, method: str, path: str, body: str | None, more: dict[str, str]) -> Answer:
        headers = {"Authorization": f"token {self._lab.token}", **more}
        headers = {key: value for key, value in headers.items() if value}
        url = f"{self._lab.url}hai_jupyter/{path}"
        request = HTTPRequest(url, method, headers, body, request_timeout=_PATIENCE)
        answer = await AsyncHTTPClient().fetch(request, raise_error=False)
        text = answer.body.decode()
        try:
            return Answer(answer.code, json.loads(text), text)
        except ValueError:
            return Answer(answer.code, None, text)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterSetup]:
    """Two nodes, and Jupyter without its front end."""
    yield from start_setup(tmp_path_factory.mktemp("jupyter"), lab=False)


def start_setup(
    home: Path, *, lab: bool, nodes: int = 2, **variables: str
) -> Iterator[JupyterSetup]:
    """Start a platform and a Jupyter server in `home`, and stop both at the end."""
    (home / "hai").mkdir()
    server = ServerProcess(home / "hai", "--nodes", str(nodes))
    profile = server.start()
    write_profile(home / "config.toml", profile)
    try:
        jupyter = start_lab(home, home / "config.toml", lab=lab, **variables)
        try:
            yield JupyterSetup(home, server, profile, jupyter)
        finally:
            jupyter.end()
    finally:
        if server.running:
            server.end()
        server.sweep()


def sync_command(setup: JupyterSetup, folder: Path, *arguments: str) -> None:
    """Run `haiworkspace` in a folder with the user's profile."""
    command = [sys.executable, "-m", "hai_sync.cli.main", *arguments]
    environment = {"HAI_CONFIG": str(setup.home / "config.toml"), "PATH": "/usr/bin"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def page(setup: JupyterSetup) -> Page:
    """A page that is open."""
    return Page(setup.lab)


@pytest.fixture
async def client(setup: JupyterSetup) -> AsyncIterator[Client]:
    """The platform, asked directly."""
    async with Client(setup.profile) as client:
        yield client

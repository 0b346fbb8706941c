"""Events of real tasks are sent to a real HTTP server, also if the server is killed before it could send them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hai.client.client import Client
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai.v1.webhook_service_pb2 import Webhook
from tests.ports import free_port
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.e2e


class Chat:
    """The receiver of webhooks. It refuses them while `closed`."""

    def __init__(self) -> None:
        self.port = free_port()
        self.closed = False
        self.tries = 0
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.heard = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.tries += 1
        if not self.closed:
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.taken.append((headers, await request.read()))
        self.heard.set()
        return web.Response(status=503 if self.closed else 204)

    async def hear(self) -> None:
        async with asyncio.timeout(60):
            await self.heard.wait()
        self.heard.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    made = Chat()
    app = web.Application()
    app.router.add_post("/hook", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", made.port).start()
    yield made
    await runner.cleanup()


@pytest.fixture
def server(tmp_path: Path, chat: Chat) -> Iterator[ServerProcess]:
    (tmp_path / "hai.toml").write_text(f'webhooks = "{chat.url}"\ncluster = "lab"\n')
    made = ServerProcess(tmp_path)
    yield made
    if made.running:
        made.end()
    made.sweep()


async def fails(client: Client, home: Path) -> int:
    """Submit a task that fails, and return its number after the failure."""
    program = home / "fails.sh"
    program.write_text("exit 3\n")
    spec = TaskSpec(
        version=2,
        name="fails",
        spec=ProgramSpec(entrypoint=str(program)),
        resource=ResourceSpec(node_count=1),
    )
    made = await client.tasks.create(spec)
    ended = await client.tasks.wait(made.id, "finished")
    return ended.id


def told(headers: dict[str, str], body: bytes, secret: str) -> list[dict[str, Any]]:
    """Return the events of a webhook. Raises AssertionError if the signature is not as the manual describes."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    events: list[dict[str, Any]] = json.loads(body)["data"]["events"]
    return events


async def test_a_task_is_told_of_from_start_to_end(
    server: ServerProcess, chat: Chat, tmp_path: Path
) -> None:
    async with Client(server.start()) as client:
        hook = Webhook(name="chat", url=f"{chat.url}/hook", news=["started", "failed"])
        secret = (await client.webhooks.set(hook)).secret
        assert await client.webhooks.test("chat") == ""
        await chat.hear()
        number = await fails(client, tmp_path)
        events: list[dict[str, Any]] = []
        while len(events) < 2:
            await chat.hear()
            events = [each for letter in chat.taken[1:] for each in told(*letter, secret)]
        assert [each["id"] for each in events] == [f"{number}.1.started", f"{number}.1.ended"]
        assert (events[1]["outcome"], events[1]["name"]) == ("FAILED", "fails")
        assert "3" in events[1]["reason"]


async def test_what_a_killed_server_had_to_tell_is_told_by_the_next(
    server: ServerProcess, chat: Chat, tmp_path: Path
) -> None:
    chat.closed = True
    async with Client(server.start()) as client:
        secret = (await client.webhooks.set(Webhook(name="c", url=f"{chat.url}/hook"))).secret
        number = await fails(client, tmp_path)
        await chat.hear()
    server.end(9)
    chat.closed = False
    async with Client(server.start()) as client:
        await chat.hear()
        (letter,) = chat.taken
        assert [each["id"] for each in told(*letter, secret)] == [f"{number}.1.ended"]
        (kept,) = await client.webhooks.list()
        while not kept.HasField("last_time"):
            await asyncio.sleep(0.05)
            (kept,) = await client.webhooks.list()
        assert kept.last_error == ""

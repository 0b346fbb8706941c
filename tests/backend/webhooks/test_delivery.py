"""Requests over a real connection, to receivers that accept, refuse or do not exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from hai_backend.domain.accounts.webhook import Format
from hai_backend.domain.errors import Unavailable
from hai_backend.webhooks import delivery as posting
from hai_backend.webhooks.delivery import post
from hai_backend.webhooks.payload import WebhookRequest
from tests.ports import free_port


class Other:
    """A receiver that records its requests."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes, str]] = []
        self.url = ""
        self.over = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append((request.path, await request.read(), request.headers["X-Test"]))
        match request.path:
            case "/gone":
                return web.Response(status=410)
            case "/elsewhere":
                raise web.HTTPFound("/taken")
            case "/slow":
                await self.over.wait()
            case "/feishu":
                return web.json_response({"code": 19001, "msg": "token invalid"})
        return web.Response(text="ok")


@pytest.fixture
async def other() -> AsyncIterator[Other]:
    made, port = Other(), free_port()
    app = web.Application()
    app.router.add_post("/{path}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    made.url = f"http://127.0.0.1:{port}"
    yield made
    made.over.set()
    await runner.cleanup()


async def sent(url: str, format: Format = Format.JSON) -> str:
    """Send a request. Return why it was refused, or an empty text."""
    try:
        await post(WebhookRequest(url, {"X-Test": "1"}, b"{}"), format)
    except Unavailable as error:
        return str(error)
    return ""


async def test_request_is_accepted(other: Other) -> None:
    assert await sent(other.url + "/taken") == ""
    assert other.got == [("/taken", b"{}", "1")]


async def test_no_redirect_is_followed(other: Other) -> None:
    assert await sent(other.url + "/elsewhere") == f"{other.url} did not take it: it answered 302"
    assert [path for path, *_ in other.got] == ["/elsewhere"]


async def test_refusals(other: Other) -> None:
    assert await sent(other.url + "/gone") == f"{other.url} did not take it: it answered 410"
    why = await sent(other.url + "/feishu", Format.FEISHU)
    assert why == f"{other.url} did not take it: it says 19001: token invalid"


async def test_receiver_that_does_not_answer_times_out(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "SECONDS", 0.05)
    assert "no answer within" in await sent(other.url + "/slow")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:{port}/secret", "it cannot be reached"),
        ("https://127.0.0.1:{other}/secret", "it does not speak TLS"),
        ("http://no-such-host.invalid/secret", "its name is not known"),
    ],
)
async def test_unreachable_receiver_is_reported(other: Other, url: str, why: str) -> None:
    port = other.url.rpartition(":")[2]
    told = await sent(url.format(port=free_port(), other=port))
    assert told.endswith(f"did not take it: {why}")
    assert "secret" not in told

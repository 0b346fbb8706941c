"""Kernels of a JupyterLab server. As in the browser, the connection is a WebSocket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp


@asynccontextmanager
async def kernel(
    web: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A new one, and the way to it."""
    async with web.post(f"{url}api/kernels", json={"name": "python3"}, headers=headers) as made:
        number = (await made.json())["id"]
    channels = f"{url.replace('http:', 'ws:')}api/kernels/{number}/channels"
    own = {"Origin": headers["Origin"]}
    async with web.ws_connect(channels, headers=own, max_msg_size=0) as socket:
        yield socket


def execute(code: str) -> dict[str, Any]:
    """Return the message that asks a kernel to execute code."""
    header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "version": "5.3"}
    return {
        "header": {**header, "username": "", "date": ""},
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False, "store_history": False, "user_expressions": {}},
        "channel": "shell",
        "buffers": [],
    }


async def printed(socket: aiohttp.ClientWebSocketResponse) -> str:
    """Return the text that a kernel prints next. Raises AssertionError if the WebSocket is closed before."""
    async for message in socket:
        said = json.loads(message.data)
        if said["header"]["msg_type"] == "stream":
            return str(said["content"]["text"])
    raise AssertionError(f"the websocket was closed: {socket.close_code}")

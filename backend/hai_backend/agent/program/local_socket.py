"""The unix socket for calls of the program's SDK to its agent. Each call is a line with a JSON object.

Calls are answered in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hai_backend.launch import socket_paths

_MAX_CALL_BYTES = 64 * 1024
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

Answer = dict[str, object]
Call = Callable[[Mapping[str, Any]], Awaitable[Answer]]


class BadCall(Exception):
    """A call is invalid. The program gets the message."""


class LocalSocket:
    """Answers calls of processes of the same user. `calls` has a function for each name of a call."""

    def __init__(self, path: Path, calls: Mapping[str, Call], *, owner: int | None = None) -> None:
        self._owner = os.getuid() if owner is None else owner
        self._path = path
        self._calls = calls
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start to listen. If the path is too long for a socket, it becomes a link to a short path."""
        address = socket_paths.shorten(self._path)
        self._server = await asyncio.start_unix_server(self._serve, address, limit=_MAX_CALL_BYTES)
        os.chmod(address, 0o600)

    def close(self) -> None:
        """Stop listening, and remove a short path outside the directory of the rank."""
        if self._server is not None:
            self._server.close()
        socket_paths.remove_link(self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            if _peer_uid(writer) == self._owner:
                await self._answer_all(reader, writer)
        writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the calls on a connection until it is closed or a call is too long."""
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                writer.write(
                    _encode_line(_refusal(f"a call is longer than {_MAX_CALL_BYTES} bytes"))
                )
                return
            if not line:
                return
            writer.write(_encode_line(await self._answer(line)))
            await writer.drain()

    async def _answer(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
            call = self._calls[request["call"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            names = ", ".join(sorted(self._calls))
            return _refusal(f'expected a JSON object like {{"call": NAME}} with one of: {names}')
        try:
            return await call(request)
        except BadCall as error:
            return _refusal(f"{request['call']}: {error}")


def number(request: Mapping[str, Any], name: str, low: float, high: float) -> float:
    """Return a field of a call. Raises BadCall unless it is a number within the limits."""
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadCall(f"{name} must be a number from {low} to {high}, not {value!r}")
    return value


def integer(
    request: Mapping[str, Any], name: str, low: int = -(2**63), high: int = 2**63 - 1
) -> int:
    """Return a field of a call. Raises BadCall unless it is an integer within the limits."""
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadCall(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return value


def _refusal(error: str) -> Answer:
    return {"ok": False, "error": error}


def _encode_line(answer: Answer) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    peer = writer.get_extra_info("socket")
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(packed)[1])

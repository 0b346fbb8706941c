"""This terminal, or these pipes, joined to a command far away."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress

import click

from hai.client.tasks.tunnels import PIECE_BYTES, Tunnel
from hai.v1.tunnel_pb2 import TerminalSize
from hai.v1.tunnel_service_pb2 import OpenTunnelResponse

_IN, _OUT, _ERROR = 0, 1, 2


def at_terminal() -> bool:
    """Whether a person types here and reads here."""
    return os.isatty(_IN) and os.isatty(_OUT)


def size() -> TerminalSize:
    """Of this terminal."""
    columns, rows = os.get_terminal_size(_OUT)
    return TerminalSize(columns=columns, rows=rows)


async def join(
    tunnel: Tunnel, answers: AsyncGenerator[OpenTunnelResponse, None], *, terminal: bool
) -> int:
    """The command's exit code. Raises what the tunnel raises, and ClickException when it breaks off."""
    opened = await anext(answers)
    assert opened.HasField("opened")
    with _raw() if terminal else _cooked():
        sending = asyncio.ensure_future(_send(tunnel))
        resized = _when_resized(tunnel) if terminal else (lambda: None)
        try:
            return await _receive(answers)
        finally:
            resized()
            sending.cancel()


async def _receive(answers: AsyncGenerator[OpenTunnelResponse, None]) -> int:
    async for answer in answers:
        match answer.WhichOneof("message"):
            case "data":
                _write(_OUT, answer.data)
            case "error_data":
                _write(_ERROR, answer.error_data)
            case "exit_code":
                return answer.exit_code
    raise click.ClickException("the connection ended before the command did")


def _write(number: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(number, remaining) :]


async def _send(tunnel: Tunnel) -> None:
    while data := await _typed():
        await tunnel.send(data)
    await tunnel.end()


async def _typed() -> bytes:
    """What is there on stdin; empty at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(_IN, _settle, ready)
    except (PermissionError, OSError):  # a file: it can always be read
        await asyncio.sleep(0)
        return os.read(_IN, PIECE_BYTES)
    try:
        await ready
    finally:
        loop.remove_reader(_IN)
    with suppress(OSError):  # the terminal is gone
        return os.read(_IN, PIECE_BYTES)
    return b""


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _when_resized(tunnel: Tunnel) -> Callable[[], None]:
    """Tell the far side until the answer is called."""
    loop, work = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def send_size() -> None:
        telling = asyncio.ensure_future(tunnel.resize(size()))
        work.add(telling)
        telling.add_done_callback(work.discard)

    loop.add_signal_handler(signal.SIGWINCH, send_size)

    def forget() -> None:
        loop.remove_signal_handler(signal.SIGWINCH)
        for telling in work:
            telling.cancel()

    return forget


@contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the far side; the terminal is as it was afterwards."""
    sys.stdout.flush()
    before = termios.tcgetattr(_IN)
    tty.setraw(_IN, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(_IN, termios.TCSADRAIN, before)


@contextmanager
def _cooked() -> Iterator[None]:
    yield

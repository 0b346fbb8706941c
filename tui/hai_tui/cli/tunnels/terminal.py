"""Connects this terminal, or stdin and stdout, to a command in a rank."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

import click

from hai.client.tasks.tunnels import PIECE_BYTES, Tunnel
from hai.v1.tunnel_pb2 import TerminalSize
from hai.v1.tunnel_service_pb2 import OpenTunnelResponse

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def is_terminal() -> bool:
    """Return True if stdin and stdout are terminals."""
    return os.isatty(_STDIN) and os.isatty(_STDOUT)


def terminal_size() -> TerminalSize:
    columns, rows = os.get_terminal_size(_STDOUT)
    return TerminalSize(columns=columns, rows=rows)


async def attach(
    tunnel: Tunnel, responses: AsyncGenerator[OpenTunnelResponse, None], *, terminal: bool
) -> int:
    """Pass data both ways until the command ends. Return its exit code.

    Raise the errors of the tunnel, and ClickException if the connection breaks.
    """
    first_response = await anext(responses)
    assert first_response.HasField("opened")
    with _raw() if terminal else nullcontext():
        sending = asyncio.ensure_future(_send(tunnel))
        stop_resizes = _forward_resizes(tunnel) if terminal else (lambda: None)
        try:
            return await _receive(responses)
        finally:
            stop_resizes()
            sending.cancel()


async def _receive(responses: AsyncGenerator[OpenTunnelResponse, None]) -> int:
    async for response in responses:
        match response.WhichOneof("message"):
            case "data":
                _write(_STDOUT, response.data)
            case "error_data":
                _write(_STDERR, response.error_data)
            case "exit_code":
                return response.exit_code
    raise click.ClickException("the connection ended before the command did")


def _write(number: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(number, remaining) :]


async def _send(tunnel: Tunnel) -> None:
    while data := await _read_stdin():
        await tunnel.send(data)
    await tunnel.end()


async def _read_stdin() -> bytes:
    """Return the available bytes of stdin; empty at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(_STDIN, _resolve, ready)
    except (PermissionError, OSError):  # the loop cannot watch a file, but a file is always ready
        await asyncio.sleep(0)
        return os.read(_STDIN, PIECE_BYTES)
    try:
        await ready
    finally:
        loop.remove_reader(_STDIN)
    with suppress(OSError):  # the terminal is gone
        return os.read(_STDIN, PIECE_BYTES)
    return b""


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _forward_resizes(tunnel: Tunnel) -> Callable[[], None]:
    """Send the size of the terminal whenever it changes. Return a function that stops this."""
    loop, jobs = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def send_size() -> None:
        job = asyncio.ensure_future(tunnel.resize(terminal_size()))
        jobs.add(job)
        job.add_done_callback(jobs.discard)

    loop.add_signal_handler(signal.SIGWINCH, send_size)

    def stop_forwarding() -> None:
        loop.remove_signal_handler(signal.SIGWINCH)
        for job in jobs:
            job.cancel()

    return stop_forwarding


@contextmanager
def _raw() -> Iterator[None]:
    """Send every key to the command. Restore the terminal afterwards."""
    sys.stdout.flush()
    before = termios.tcgetattr(_STDIN)
    tty.setraw(_STDIN, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)

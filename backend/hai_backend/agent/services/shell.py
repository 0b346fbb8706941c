"""A command that a remote user runs in the environment of the rank, with a terminal or with three pipes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import struct
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import tunnel_pb2
from hai_backend.agent.output.descriptor import Descriptor
from hai_backend.agent.program.program import bind_to_agent, find_shell
from hai_backend.agent.program.reaper import Child, Reaper
from hai_backend.agent.server.tunnel_endpoint import Unreachable

_HANG_UP_SECONDS = 1.0
# The limit of pieces to read after the command has ended, because processes that it has started may print for ever.
_MAX_LAST_PIECES = 256


class Shell:
    """A running command. Implements TunnelEndpoint."""

    def __init__(self, child: Child, stdin: Descriptor, outputs: Mapping[str, Descriptor]) -> None:
        self._child = child
        self._stdin = stdin
        self._outputs = dict(outputs)  # by the message field that carries the output
        self._has_terminal = stdin in outputs.values()
        self._has_news = asyncio.Event()
        child.ended.add_done_callback(lambda _: self._has_news.set())

    async def messages(self) -> AsyncIterator[pb.CarryRequest]:
        """Yield the output of the command, and its exit code as the last message."""
        while not self._child.ended.done():
            for message in self._read_outputs():
                yield message
            await self._wait_for_output()
        for _ in range(_MAX_LAST_PIECES):
            messages = self._read_outputs()
            if not messages:
                break
            for message in messages:
                yield message
        yield pb.CarryRequest(exit_code=self._child.ended.result())

    async def write(self, data: bytes) -> None:
        """Write input of the caller. It is lost if the command has closed its standard input."""
        with suppress(OSError):
            if self._stdin.open:
                await self._stdin.write(data)

    def resize(self, size: tunnel_pb2.TerminalSize) -> None:
        """Set the size of the terminal, if there is one."""
        if self._has_terminal:
            _set_size(self._stdin.number, size)

    def end_input(self) -> None:
        """Close standard input, if it is a pipe."""
        if not self._has_terminal:
            self._stdin.close()

    async def close(self) -> None:
        """Send SIGHUP, then SIGKILL, to the process group. Processes that have left it continue in the rank."""
        self._signal(signal.SIGHUP)
        for descriptor in (self._stdin, *self._outputs.values()):
            descriptor.close()
        await asyncio.wait((self._child.ended,), timeout=_HANG_UP_SECONDS)
        self._signal(signal.SIGKILL)

    def _read_outputs(self) -> list[pb.CarryRequest]:
        messages = []
        for kind, descriptor in list(self._outputs.items()):
            data = descriptor.read()
            if data:
                messages.append(pb.CarryRequest(**{kind: data}))  # type: ignore[arg-type]
            elif data is not None:  # no process has the other end open
                del self._outputs[kind]
                if not self._has_terminal:
                    descriptor.close()
        return messages

    async def _wait_for_output(self) -> None:
        """Wait until a descriptor can be read or the command has ended."""
        self._has_news.clear()
        if self._child.ended.done():
            return
        for descriptor in self._outputs.values():
            descriptor.watch(self._has_news.set)
        try:
            await self._has_news.wait()
        finally:
            for descriptor in self._outputs.values():
                descriptor.stop_watching()

    def _signal(self, number: int) -> None:
        if not self._child.ended.done():
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def start(
    target: tunnel_pb2.ShellTarget, cwd: Path, variables: Mapping[str, str], reaper: Reaper
) -> Shell:
    """Start a command. Raises Unreachable if it does not exist."""
    argv = tuple(target.command) or (find_shell(variables),)
    _check_exists(argv, cwd, variables)
    if target.HasField("terminal"):
        return _start_on_terminal(argv, target, cwd, variables, reaper)
    return _start_on_pipes(argv, cwd, variables, reaper)


def _check_exists(argv: Sequence[str], cwd: Path, variables: Mapping[str, str]) -> None:
    """Raise Unreachable if the program does not exist, which is clearer than an exit code of exec_program."""
    name = argv[0]
    path = shutil.which(str(cwd / name) if "/" in name else name, path=variables.get("PATH"))
    if path is None:
        raise Unreachable(f"there is no program {name} in this rank: check the name, or its PATH")


def _start_on_terminal(
    argv: Sequence[str],
    target: tunnel_pb2.ShellTarget,
    cwd: Path,
    variables: Mapping[str, str],
    reaper: Reaper,
) -> Shell:
    our_end, child_end = os.openpty()
    try:
        os.set_inheritable(our_end, False)
        _set_size(child_end, target.terminal)
        shell_variables = {**variables, "TERM": target.term or "xterm-256color"}
        child = reaper.spawn(bind_to_agent(argv), child_end, cwd, shell_variables, stdin=child_end)
    except BaseException:
        os.close(our_end)
        raise
    finally:
        os.close(child_end)
    terminal = Descriptor(our_end)
    return Shell(child, terminal, {"data": terminal})


def _start_on_pipes(
    argv: Sequence[str], cwd: Path, variables: Mapping[str, str], reaper: Reaper
) -> Shell:
    (child_in, stdin), (out, child_out), (error, child_error) = (
        os.pipe2(os.O_CLOEXEC) for _ in range(3)
    )
    try:
        child = reaper.spawn(
            bind_to_agent(argv), child_out, cwd, variables, stdin=child_in, error=child_error
        )
    except BaseException:
        for number in (stdin, out, error):
            os.close(number)
        raise
    finally:
        for number in (child_in, child_out, child_error):
            os.close(number)
    outputs = {"data": Descriptor(out), "error_data": Descriptor(error)}
    return Shell(child, Descriptor(stdin), outputs)


def _set_size(terminal: int, size: tunnel_pb2.TerminalSize) -> None:
    rows, columns = (min(max(n, 1), 10_000) for n in (size.rows or 24, size.columns or 80))
    with suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

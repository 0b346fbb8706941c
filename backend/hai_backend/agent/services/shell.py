"""A command in the rank's environment for somebody far away: on a terminal of its own, or on three pipes."""

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
from hai_backend.agent.program.program import bound_to_us, usual_shell
from hai_backend.agent.program.reaper import Child, Reaper
from hai_backend.agent.server.tunnel_endpoint import Unreachable

_HANG_UP_SECONDS = 1.0
# pieces that are still read after the end, should something left behind go on printing
_DRAINS = 256


class Shell:
    """Implements TunnelEndpoint."""

    def __init__(self, child: Child, feed: Descriptor, outputs: Mapping[str, Descriptor]) -> None:
        self._child = child
        self._feed = feed
        self._outputs = dict(outputs)  # by the kind of message that carries what it says
        self._on_terminal = feed in outputs.values()
        self._changed = asyncio.Event()
        child.ended.add_done_callback(lambda _: self._changed.set())

    async def messages(self) -> AsyncIterator[pb.CarryRequest]:
        """What it prints; its exit code comes last."""
        while not self._child.ended.done():
            for message in self._printed():
                yield message
            await self._wait_for_output()
        for _ in range(_DRAINS):
            messages_left = list(self._printed())
            if not messages_left:
                break
            for message in messages_left:
                yield message
        yield pb.CarryRequest(exit_code=self._child.ended.result())

    async def write(self, data: bytes) -> None:
        """What the caller types; nobody reads it any more: it is lost, as in a broken pipe."""
        with suppress(OSError):
            if self._feed.open:
                await self._feed.write(data)

    def resize(self, size: tunnel_pb2.TerminalSize) -> None:
        """The caller's window has changed."""
        if self._on_terminal:
            _set_size(self._feed.number, size)

    def end_input(self) -> None:
        """On pipes the command reads the end; on a terminal nothing can be said."""
        if not self._on_terminal:
            self._feed.close()

    async def close(self) -> None:
        """Hang up; whoever does not go is killed. What it has sent to sessions of their own lives on in the rank."""
        self._signal(signal.SIGHUP)
        for descriptor in (self._feed, *self._outputs.values()):
            descriptor.close()
        await asyncio.wait((self._child.ended,), timeout=_HANG_UP_SECONDS)
        self._signal(signal.SIGKILL)

    def _printed(self) -> list[pb.CarryRequest]:
        found = []
        for kind, descriptor in list(self._outputs.items()):
            data = descriptor.read()
            if data:
                found.append(pb.CarryRequest(**{kind: data}))  # type: ignore[arg-type]
            elif data is not None:  # nobody will print there any more
                del self._outputs[kind]
                if not self._on_terminal:
                    descriptor.close()
        return found

    async def _wait_for_output(self) -> None:
        """Wait until a descriptor can be read or the command has ended."""
        self._changed.clear()
        if self._child.ended.done():
            return
        for descriptor in self._outputs.values():
            descriptor.when_readable(self._changed.set)
        try:
            await self._changed.wait()
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
    """Raises Unreachable when there is no such command."""
    argv = tuple(target.command) or (usual_shell(variables),)
    _check(argv, cwd, variables)
    if target.HasField("terminal"):
        return _on_terminal(argv, target, cwd, variables, reaper)
    return _on_pipes(argv, cwd, variables, reaper)


def _check(argv: Sequence[str], cwd: Path, variables: Mapping[str, str]) -> None:
    """program/exec_program.py would say it, too, but on the terminal, with an exit code that may mean anything."""
    name = argv[0]
    found = shutil.which(str(cwd / name) if "/" in name else name, path=variables.get("PATH"))
    if found is None:
        raise Unreachable(f"there is no program {name} in this rank: check the name, or its PATH")


def _on_terminal(
    argv: Sequence[str],
    target: tunnel_pb2.ShellTarget,
    cwd: Path,
    variables: Mapping[str, str],
    reaper: Reaper,
) -> Shell:
    ours, its = os.openpty()
    try:
        os.set_inheritable(ours, False)
        _set_size(its, target.terminal)
        shell_variables = {**variables, "TERM": target.term or "xterm-256color"}
        child = reaper.spawn(bound_to_us(argv), its, cwd, shell_variables, stdin=its)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(its)
    terminal = Descriptor(ours)
    return Shell(child, terminal, {"data": terminal})


def _on_pipes(
    argv: Sequence[str], cwd: Path, variables: Mapping[str, str], reaper: Reaper
) -> Shell:
    (its_in, feed), (out, its_out), (error, its_error) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
    try:
        child = reaper.spawn(
            bound_to_us(argv), its_out, cwd, variables, stdin=its_in, error=its_error
        )
    except BaseException:
        for number in (feed, out, error):
            os.close(number)
        raise
    finally:
        for number in (its_in, its_out, its_error):
            os.close(number)
    outputs = {"data": Descriptor(out), "error_data": Descriptor(error)}
    return Shell(child, Descriptor(feed), outputs)


def _set_size(terminal: int, size: tunnel_pb2.TerminalSize) -> None:
    rows, columns = (min(max(n, 1), 10_000) for n in (size.rows or 24, size.columns or 80))
    with suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

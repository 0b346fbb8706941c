"""A fake agent for the SDK, with a control file and a unix socket that a thread serves."""

from __future__ import annotations

import contextlib
import json
import mmap
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hai.task import control_file, current_channel, env

Call = dict[str, Any]
_NAMES = [value for name, value in vars(env).items() if name.isupper()]


class FakeAgent:
    """Answers calls like hai-agent, records them, and sets the flags of a suspend."""

    def __init__(self, folder: Path) -> None:
        self.control_file = folder / "control"
        self.socket_path = folder / "agent.sock"
        self.calls: list[Call] = []
        self.refusals: dict[str, str] = {}
        self.on_call: Callable[[Call], None] = lambda call: None
        self._heard = threading.Condition()
        self.control_file.write_bytes(bytes(control_file.SIZE))
        with self.control_file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), control_file.SIZE)
        for slot in range(control_file.STEP_SLOTS):
            self._put(control_file.STEPS + 8 * slot, -1)
        self._server = self._serve()

    @property
    def environ(self) -> dict[str, str]:
        return {
            env.CONTROL_FILE: str(self.control_file),
            env.AGENT_SOCKET: str(self.socket_path),
            env.TASK_TYPE: "training",
        }

    @property
    def names(self) -> list[str]:
        return [call["call"] for call in self.calls]

    def ask(self) -> None:
        self._map[control_file.FLAG] = control_file.REQUESTED

    def agree(self, step: int) -> None:
        self._put(control_file.STOP_STEP, step)
        self._map[control_file.FLAG] = control_file.AGREED

    def step(self, slot: int = 0) -> int:
        value: int = struct.unpack_from("<q", self._map, control_file.STEPS + 8 * slot)[0]
        return value

    def set_state(self, value: int) -> None:
        self._put(control_file.WHOLE_LIFE_STATE, value)

    def wait_for(self, name: str, count: int = 1) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: self.names.count(name) >= count, 30), self.names

    def answer(self, call: Call) -> Call:
        with self._heard:
            self.calls.append(call)
            self._heard.notify_all()
        self.on_call(call)
        if call["call"] in self.refusals:
            return {"ok": False, "error": self.refusals[call["call"]]}
        if call["call"] == "set_whole_life_state":
            before = struct.unpack_from("<q", self._map, control_file.WHOLE_LIFE_STATE)[0]
            self.set_state(call["value"])
            return {"ok": True, "changed": before != call["value"]}
        return {"ok": True}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.socket_path.unlink(missing_ok=True)

    def _put(self, offset: int, value: int) -> None:
        struct.pack_into("<q", self._map, offset, value)

    def _serve(self) -> socketserver.ThreadingUnixStreamServer:
        agent = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the program has ended
                    for line in self.rfile:
                        answer = agent.answer(json.loads(line))
                        self.wfile.write(json.dumps(answer).encode() + b"\n")

        server = socketserver.ThreadingUnixStreamServer(str(self.socket_path), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No cluster, no simulation, and a fresh channel."""
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    current_channel.reset()
    yield monkeypatch
    current_channel.reset()


@pytest.fixture
def fake_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeAgent]:
    agent = FakeAgent(tmp_path_factory.mktemp("agent"))
    yield agent
    agent.close()


@pytest.fixture
def cluster(outside: pytest.MonkeyPatch, fake_agent: FakeAgent, tmp_path: Path) -> FakeAgent:
    """This process is a rank of a training task."""
    for name, value in fake_agent.environ.items():
        outside.setenv(name, value)
    outside.setenv(env.CHECKPOINT_DIR, str(tmp_path / "checkpoints"))
    return fake_agent


@pytest.fixture
def simulated(outside: pytest.MonkeyPatch) -> Callable[..., None]:
    """Call it with variables to be in a simulated task."""

    def simulate(**variables: str) -> None:
        for name, value in {env.SIMULATE: "1", **variables}.items():
            outside.setenv(name, value)

    return simulate


@pytest.fixture
def program_environ(outside: pytest.MonkeyPatch, fake_agent: FakeAgent) -> dict[str, str]:
    """Variables for a program in a process of its own."""
    import os

    return {**os.environ, **fake_agent.environ}

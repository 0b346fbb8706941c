"""The files that an agent, its launcher and its program share; the only place that knows where they are."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hai.host.atomic_write import replacing
from hai.redaction import redact
from hai_backend.domain.timing import Timing
from hai_backend.launch import processes, rank_dirs
from hai_backend.launch.processes import Process

_TIMING = tuple(field.name for field in fields(Timing))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this agent is: agent.json."""

    task_id: int
    run: int
    rank: int
    node: str
    token: str
    gpu_indices: tuple[int, ...] | None = None  # of the machine; None: it has none to choose from
    # seconds to save after SIGTERM, which then is a suspend; 0: it ends the program
    leave_within: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is now: one of server.json. `ca` is the path of a PEM file; empty: no TLS."""

    address: str
    ca: str = ""


class RankDir:
    """HOME/run/<task>-<run>-<rank>."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.agent_pid = path / rank_dirs.AGENT_PID
        self.program_pid = path / rank_dirs.PROGRAM_PID
        self.control = path / rank_dirs.CONTROL
        self.socket = path / rank_dirs.SOCKET
        self.spool = path / "spool"
        self.scratch = path / "scratch"
        self.notice = path / "notice.json"
        self.failure = path / rank_dirs.FAILURE
        self.profile = path / "hai.toml"

    def claim(self) -> bool:
        """Hold the rank for this agent, as long as it lives; False when another one has it."""
        held = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def identity(self) -> Identity:
        """Read agent.json."""
        facts = json.loads((self.path / "agent.json").read_bytes())
        gpus = facts.pop("gpu_indices", None)
        return Identity(**facts, gpu_indices=None if gpus is None else tuple(gpus))

    def servers(self) -> tuple[ServerAddress, ...]:
        """Read server.json, two levels up: addresses may change when a server is started again, or another leads."""
        facts = self._server_facts()
        addresses, ca = str(facts["address"]).split(","), self._authority(facts)
        return tuple(ServerAddress(address.strip(), ca) for address in addresses)

    def timing(self) -> Timing:
        """How often to send heartbeats, and how long the lease is. Read from server.json."""
        try:
            facts = self._server_facts()
        except (OSError, ValueError):
            return Timing()  # a server of this machine is being started
        return Timing(**{name: float(facts[name]) for name in _TIMING if name in facts})

    def report_failure(self, why: str) -> None:
        """Why the rank ended in a way that no server was told; the launcher reads it. The first reason counts."""
        part = self.failure.with_name(f".{self.failure.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk, or the directory was removed: agent.log says it too
            part.write_text(redact(why))
            os.link(
                part, self.failure
            )  # whole, or not at all: who writes it may be killed at any moment
        with suppress(OSError):
            part.unlink()

    def _server_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self._home / "server.json").read_bytes())
        return facts

    def _authority(self, facts: Mapping[str, Any]) -> str:
        """The file may lie beside server.json, where only its name is told."""
        ca = str(facts.get("ca", ""))
        return str(self._home / ca) if ca else ""

    @property
    def _home(self) -> Path:
        return self.path.parent.parent

    def socket_address(self) -> Path:
        """Where the agent listens: LocalSocket links to a short path when ours is too long for a socket."""
        return self.socket.readlink() if self.socket.is_symlink() else self.socket

    def write_profile(self, token: str) -> None:
        """For `hai` in a dev container: the servers of now, in the format of hai.client.profile (a test compares)."""
        facts = self._server_facts()
        server, ca = str(facts["address"]), self._authority(facts)
        fields = {"server": server, "token": token, "ca": ca, "insecure": not ca}
        lines = (f"{name} = {json.dumps(value)}" for name, value in fields.items())
        text = "\n".join(('current = "cluster"', "[profiles.cluster]", *lines, ""))
        with replacing(self.profile) as file:
            file.write(text.encode())

    def exists(self) -> bool:
        """False when somebody removed it: the rank is not wanted any more."""
        return (self.path / "agent.json").exists()

    def leftovers(self) -> list[Process]:
        """Every process of the rank but this one and the supervisor."""
        found = {p.pid: p for p in processes.descendants(os.getpid())}
        found |= {
            p.pid: p
            for p, rank in processes.marked_processes(self.path.parent)
            if rank == self.path
        }
        if (supervisor := processes.read_pid_file(self.agent_pid)) is not None:
            found.pop(supervisor.pid, None)
        return list(found.values())

    def end_everything(self) -> list[Process]:
        """SIGKILL every process of the rank but this one; answers what could not be ended."""
        return processes.kill_all(self.leftovers)

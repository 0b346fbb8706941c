"""The files in a rank's directory, which an agent, its launcher and its program share, and agent.log."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
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
    """The content of agent.json, which identifies the rank that this agent runs."""

    task_id: int
    run: int
    rank: int
    node: str
    token: str
    gpu_indices: tuple[int, ...] | None = None  # None if the machine has no GPUs
    leave_within: float = 0.0  # seconds to save after SIGTERM; if 0, SIGTERM only ends the program


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server in server.json. `ca` is the path of a PEM file; empty without TLS."""

    address: str
    ca: str = ""


class RankDir:
    """The directory of a rank: HOME/run/<task>-<run>-<rank>."""

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
        """Lock the rank until this process ends. Return False if another agent has locked it.

        The descriptor of the lock is never closed, because that would release the lock.
        """
        lock = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def identity(self) -> Identity:
        """Read agent.json."""
        facts = json.loads((self.path / "agent.json").read_bytes())
        gpus = facts.pop("gpu_indices", None)
        return Identity(**facts, gpu_indices=None if gpus is None else tuple(gpus))

    def servers(self) -> tuple[ServerAddress, ...]:
        """Read server.json. The addresses may change when a server is restarted or another one becomes the leader."""
        facts = self._read_server_json()
        addresses, ca = str(facts["address"]).split(","), self._ca_path(facts)
        return tuple(ServerAddress(address.strip(), ca) for address in addresses)

    def timing(self) -> Timing:
        """Read the heartbeat interval and the length of the lease from server.json."""
        try:
            facts = self._read_server_json()
        except (OSError, ValueError):
            return Timing()  # the server of this machine may be starting
        return Timing(**{name: float(facts[name]) for name in _TIMING if name in facts})

    def report_failure(self, why: str) -> None:
        """Write to failure.txt why the rank ended without a report to a server. The first reason is kept."""
        part = self.failure.with_name(f".{self.failure.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk or a removed directory; agent.log has the reason, too
            part.write_text(redact(why))
            # The link makes the file either complete or absent, because this process may be killed at any moment.
            os.link(part, self.failure)
        with suppress(OSError):
            part.unlink()

    def _read_server_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self._home / "server.json").read_bytes())
        return facts

    def _ca_path(self, facts: Mapping[str, Any]) -> str:
        """Return the path of the CA file; server.json may give a name relative to its own directory."""
        ca = str(facts.get("ca", ""))
        return str(self._home / ca) if ca else ""

    @property
    def _home(self) -> Path:
        return self.path.parent.parent

    def socket_address(self) -> Path:
        """Return the path on which the agent listens. It differs from `socket` if that is too long (LocalSocket)."""
        return self.socket.readlink() if self.socket.is_symlink() else self.socket

    def write_profile(self, token: str) -> None:
        """Write the profile that `hai` in a dev container uses, in the format of hai.client.profile."""
        facts = self._read_server_json()
        server, ca = str(facts["address"]), self._ca_path(facts)
        fields = {"server": server, "token": token, "ca": ca, "insecure": not ca}
        lines = (f"{name} = {json.dumps(value)}" for name, value in fields.items())
        text = "\n".join(('current = "cluster"', "[profiles.cluster]", *lines, ""))
        with replacing(self.profile) as file:
            file.write(text.encode())

    def exists(self) -> bool:
        """Return whether the directory exists. The launcher removes it when the rank must end."""
        return (self.path / "agent.json").exists()

    def leftovers(self) -> list[Process]:
        """Return all processes of the rank except this one and the supervisor."""
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
        """Kill all processes of the rank except this one and the supervisor. Return the processes that still run."""
        return processes.kill_all(self.leftovers)


def write_agent_log(message: str) -> None:
    """Write a line with the time and without credentials to agent.log, which is the standard error of the agent.

    If the disk is full, the line is lost, because a program must not end because its agent cannot log.
    """
    with suppress(OSError):
        print(time.strftime("%FT%TZ", time.gmtime()), redact(message), file=sys.stderr, flush=True)

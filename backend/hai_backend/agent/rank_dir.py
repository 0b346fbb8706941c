"""The files that an agent, its launcher and its program share; the only place that knows where they are."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from hai_backend.launch import processes, rank_dirs
from hai_backend.launch.processes import Process


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this agent is: agent.json."""

    task_id: int
    run: int
    rank: int
    node: str
    token: str
    gpu_indices: tuple[int, ...] | None = None  # of the machine; None: it has none to choose from


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the server is now: server.json. `ca` is the path of a PEM file; empty: no TLS."""

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

    def identity(self) -> Identity:
        """Read agent.json."""
        facts = json.loads((self.path / "agent.json").read_bytes())
        gpus = facts.pop("gpu_indices", None)
        return Identity(**facts, gpu_indices=None if gpus is None else tuple(gpus))

    def server(self) -> ServerAddress:
        """Read server.json, two levels up: its address may change when the server is started again."""
        facts = json.loads((self.path.parent.parent / "server.json").read_bytes())
        return ServerAddress(str(facts["address"]), str(facts.get("ca", "")))

    def socket_address(self) -> Path:
        """Where the agent listens: LocalSocket links to a short path when ours is too long for a socket."""
        return self.socket.readlink() if self.socket.is_symlink() else self.socket

    def exists(self) -> bool:
        """False when somebody removed it: the rank is not wanted any more."""
        return (self.path / "agent.json").exists()

    def leftovers(self) -> list[Process]:
        """Every process of the rank but this one."""
        found = {p.pid: p for p in processes.descendants(os.getpid())}
        found |= {p.pid: p for p, rank in processes.marks(self.path.parent) if rank == self.path}
        return list(found.values())

    def end_everything(self) -> list[Process]:
        """SIGKILL every process of the rank but this one; answers what could not be ended."""
        return processes.end(self.leftovers)

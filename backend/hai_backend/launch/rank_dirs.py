"""The directory of each rank below HOME/run: made before its agent starts, cleared when nothing of the rank is left."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hai.task import env
from hai_backend.launch import processes, short_socket
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.inherited_variables import inherited
from hai_backend.launch.processes import Process

AGENT_PID = "agent.pid"
PROGRAM_PID = "program.pid"
FAILURE = "failure.txt"  # why the rank ended where its agent could tell no server
SOCKET = "agent.sock"
LAB_SOCKET = "jupyter.sock"
CONTROL = "control"
KERNELS = (
    "kernel-"  # directories of notebooks' kernels begin so: see hai_jupyter.kernels.kernel_dir
)


def path_of(home: Path, key: RankKey) -> Path:
    """Where a rank lives."""
    return home / "run" / str(key)


def key_of(directory: Path) -> RankKey | None:
    """The rank that a directory belongs to; None for a stranger's."""
    words = directory.name.split("-")
    if len(words) != 3 or not all(word.isdecimal() for word in words):
        return None
    return RankKey(*(int(word) for word in words))


def existing(home: Path) -> dict[RankKey, Path]:
    """Every rank that has a directory."""
    try:
        found = {key_of(path): path for path in (home / "run").iterdir()}
    except FileNotFoundError:
        return {}
    return {key: path for key, path in found.items() if key is not None}


def make(directory: Path, rank: RankLaunch, gpu_indices: tuple[int, ...] | None) -> None:
    """Fill a fresh directory that only its owner can read: it holds the run token. None: the machine has no GPUs."""
    directory.mkdir(mode=0o700, parents=True)
    facts = {
        "task_id": rank.key.task_id,
        "run": rank.key.run,
        "rank": rank.key.rank,
        "node": rank.node,
        "token": rank.token,
        "gpu_indices": gpu_indices,
    }
    handle = os.open(directory / "agent.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(facts, file)


def failure_of(directory: Path) -> str:
    """Why the rank ended where its agent could tell no server; empty: it ended as it should, or nobody knows."""
    try:
        return (directory / FAILURE).read_text(errors="replace")
    except OSError:
        return ""


def agent_variables(
    directory: Path, key: RankKey, ours: Mapping[str, str], programs: Path
) -> dict[str, str]:
    """Variables of an agent: those of the server's that tasks get, and the marks of the rank."""
    kept = inherited(ours)
    marks = {env.RANK_KEY: str(key), env.CONTROL_FILE: str(directory / CONTROL)}
    return {**kept, **marks, "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}"}


def clear(home: Path, directories: Collection[Path]) -> list[Process]:
    """End every process of these ranks and remove their directories; answers what could not be ended.

    Then the directories stay: by them it is found again.
    """
    if not directories:
        return []
    wanted = frozenset(directories)
    processes.end(lambda: _below_agents(wanted))
    survivors = processes.end(lambda: _of_ranks(home, wanted))
    for directory in wanted if not survivors else ():
        _remove(directory)
    return survivors


def _below_agents(directories: Collection[Path]) -> Iterator[Process]:
    """First, while agents live: what has shed the mark and the session is still theirs, for they are subreapers."""
    for directory in directories:
        if (agent := processes.recall(directory / AGENT_PID)) is not None:
            yield from processes.descendants(agent.pid)


def _of_ranks(home: Path, directories: Collection[Path]) -> Iterator[Process]:
    """Agents, marked processes, and members of a program's session (a title may overwrite the mark)."""
    agents = (processes.recall(directory / AGENT_PID) for directory in directories)
    found = {agent.pid: agent for agent in agents if agent is not None}
    found |= {p.pid: p for p, rank in processes.marks(home / "run") if rank in directories}
    for directory in directories:
        found |= {p.pid: p for p in processes.session_of(directory / PROGRAM_PID)}
    found.pop(os.getpid(), None)
    yield from found.values()


def _remove(directory: Path) -> None:
    import shutil  # agents import this module too, and start faster without

    for socket in (SOCKET, LAB_SOCKET):
        short_socket.remove(directory / socket)
    for link in directory.glob(f"{KERNELS}*/short"):
        short_socket.remove_directory(link)
    shutil.rmtree(directory, ignore_errors=True)

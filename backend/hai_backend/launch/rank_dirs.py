"""The directory of each rank below HOME/run. It is created before the agent starts, and removed after all processes
of the rank have ended.

Agents inherit only the variables of the server that INHERITED lists; docs/operate.md has the same table. It is a list
of allowed names, because the shell that started the server may export anything. For example, its virtual environment
and its secrets must not reach tasks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from hai.task import env
from hai_backend.launch import processes, socket_paths
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.processes import Process

AGENT_PID = "agent.pid"
PROGRAM_PID = "program.pid"
# the reason for the end of the rank, if its agent could not report it to a server
FAILURE = "failure.txt"
SOCKET = "agent.sock"
LAB_SOCKET = "jupyter.sock"
CONTROL = "control"
# prefix of the directories of notebook kernels: see hai_jupyter.kernels.kernel_dir
KERNELS = "kernel-"

INHERITED: Mapping[str, tuple[str, ...]] = {
    "the account": ("HOME", "USER", "LOGNAME", "SHELL"),
    "where programs and libraries are found": ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    "temporary and cached files": (
        *("TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
        *("HF_HOME", "TORCH_HOME"),
    ),
    "language, time zone": ("LANG", "LANGUAGE", "LC_*", "TZ", "FAKETIME_*"),
    "the way out of the site": (
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "grpc_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    ),
    "GPUs and the network between nodes": ("CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "UCX_*"),
}
"""Names, or patterns of names, by what they are for."""

_PATTERNS = tuple(pattern for patterns in INHERITED.values() for pattern in patterns)


def path_of(home: Path, key: RankKey) -> Path:
    """Return the directory of a rank."""
    return home / "run" / str(key)


def key_of(directory: Path) -> RankKey | None:
    """Return the rank that a directory belongs to; None if its name is not that of a rank."""
    parts = directory.name.split("-")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    return RankKey(*(int(part) for part in parts))


def existing(home: Path) -> dict[RankKey, Path]:
    """Return the directories of all ranks that have one."""
    try:
        found = {key_of(path): path for path in (home / "run").iterdir()}
    except FileNotFoundError:
        return {}
    return {key: path for key, path in found.items() if key is not None}


def make(directory: Path, rank: RankLaunch, gpu_indices: tuple[int, ...] | None) -> None:
    """Create the directory of a rank. Only its owner may read it, because it contains the run token.

    `gpu_indices` are the GPUs of the rank; None if the machine has no GPUs.
    """
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
    """Return why the rank ended if its agent could not report it to a server, else an empty string."""
    try:
        return (directory / FAILURE).read_text(errors="replace")
    except OSError:
        return ""


def agent_variables(
    directory: Path, key: RankKey, server_variables: Mapping[str, str], bin_dir: Path
) -> dict[str, str]:
    """Return the variables of an agent: the inherited ones, and those that mark the processes of the rank.

    `bin_dir` becomes the first directory of PATH.
    """
    passed_on = inherited(server_variables)
    marked_processes = {env.RANK_KEY: str(key), env.CONTROL_FILE: str(directory / CONTROL)}
    return {
        **passed_on,
        **marked_processes,
        "PATH": f"{bin_dir}{os.pathsep}{passed_on.get('PATH', os.defpath)}",
    }


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of the server's variables that agents inherit."""
    return {
        name: value
        for name, value in variables.items()
        if any(fnmatchcase(name, pattern) for pattern in _PATTERNS)
    }


def clear(home: Path, directories: Collection[Path]) -> list[Process]:
    """Kill all processes of these ranks and remove their directories. Return the processes that still run.

    If there are such processes, the directories are kept, so that a later call finds the processes again.
    """
    if not directories:
        return []
    requested = frozenset(directories)
    processes.kill_all(lambda: _agent_descendants(requested))
    survivors = processes.kill_all(lambda: _rank_processes(home, requested))
    for directory in requested if not survivors else ():
        _remove(directory)
    return survivors


def _agent_descendants(directories: Collection[Path]) -> Iterator[Process]:
    """Yield the descendants of the agents.

    An agent is a subreaper, so this also finds processes that have left the session and removed the mark.
    """
    for directory in directories:
        if (agent := processes.read_pid_file(directory / AGENT_PID)) is not None:
            yield from processes.descendants(agent.pid)


def _rank_processes(home: Path, directories: Collection[Path]) -> Iterator[Process]:
    """Yield agents, marked processes, and members of a program's session.

    The session is needed because a process that sets its title may overwrite the mark.
    """
    agents = (processes.read_pid_file(directory / AGENT_PID) for directory in directories)
    found = {agent.pid: agent for agent in agents if agent is not None}
    found |= {
        p.pid: p for p, rank in processes.marked_processes(home / "run") if rank in directories
    }
    for directory in directories:
        found |= {p.pid: p for p in processes.session_members(directory / PROGRAM_PID)}
    found.pop(os.getpid(), None)
    yield from found.values()


def _remove(directory: Path) -> None:
    # not at the top, because agents import this module, too, and start faster without it
    import shutil

    for socket in (SOCKET, LAB_SOCKET):
        socket_paths.remove_link(directory / socket)
    for link in directory.glob(f"{KERNELS}*/short"):
        socket_paths.remove_linked_directory(link)
    shutil.rmtree(directory, ignore_errors=True)

"""Finds the processes of a rank on this machine, and kills them reliably.

A process is identified by its pid and its start time, so a reused pid is not mistaken for it. The processes of a rank
are marked by the variable HAI_CONTROL_FILE, which is a path in the rank's directory. The path distinguishes two
clusters on one machine.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hai.task import env

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KTHREADD = 2
_EXEC_SECONDS, _READ_TRIES, _RETRY_SECONDS = 1.0, 10, 0.001
_MARK = b"\0" + env.CONTROL_FILE.encode() + b"="


@dataclass(frozen=True, slots=True)
class Process:
    """The data of /proc/PID/stat. `started` (clock ticks since boot) and `pid` together identify the process."""

    pid: int
    parent: int
    session: int
    started: int
    cpu_ticks: int
    resident_bytes: int


def read_process(pid: int) -> Process | None:
    """Return the process; None if it does not exist or is a zombie. Raises OSError if /proc cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    if fields[0] in b"ZX" and int(fields[17]) <= 1:
        return None
    ticks = int(fields[11]) + int(fields[12])
    resident = int(fields[21]) * PAGE_BYTES
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), ticks, resident)


def all_processes() -> Iterator[Process]:
    """Yield all processes of the machine."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := read_process(int(name))) is not None:
            yield process


def descendants(pid: int) -> list[Process]:
    """Return the children of `pid`, their children, and so on."""
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.parent, []).append(process)
    found, queue = [], children.get(pid, [])
    while queue:
        process = queue.pop()
        found.append(process)
        queue.extend(children.get(process.pid, []))
    return found


def marked_processes(below: Path) -> Iterator[tuple[Process, Path]]:
    """Yield the processes whose control file is below a directory, each with the directory of its rank.

    This process is never included.
    """
    needle = _MARK + os.fsencode(below) + b"/"
    for process in all_processes():
        variables = b"\0" + _environ(process)
        at = variables.find(needle)
        if at >= 0 and process.pid != os.getpid():
            path = variables[at + len(_MARK) : variables.find(b"\0", at + 1)]
            yield process, Path(os.fsdecode(path)).parent


def kill_all(find: Callable[[], Iterable[Process]], within: float = 10.0) -> list[Process]:
    """Send SIGKILL to the processes that `find` returns, until it returns none.

    Return the processes that are still alive after `within` seconds, or earlier if no file descriptor is available.
    """
    deadline = time.monotonic() + within
    while found := list(find()):
        if time.monotonic() >= deadline:
            return found
        if not _kill(found, deadline) and (remaining := [p for p in found if _exists(p)]):
            return remaining  # no file descriptor is available to watch them end
    return []


def _exists(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.started == process.started


def write_pid_file(path: Path, pid: int) -> None:
    """Write the pid and the start time of a process to a file."""
    process = read_process(pid)
    path.write_text(f"{pid} {process.started if process else 0}\n")


def read_pid_file(path: Path) -> Process | None:
    """Return the process to which a pid file belongs; None if it has ended."""
    pid, started = _read_pid_file(path)
    process = read_process(pid) if pid else None
    return process if process is not None and process.started == started else None


def session_members(path: Path) -> list[Process]:
    """Return the members of the session whose leader is or was the process of a pid file.

    The kernel does not reuse the leader's pid while there are members.
    """
    pid, started = _read_pid_file(path)
    leader = read_process(pid) if pid else None
    if not pid or (leader is not None and leader.started != started):
        return []
    return [p for p in all_processes() if p.session == pid and p.started >= started]


def _read_pid_file(path: Path) -> tuple[int, int]:
    try:
        pid, started = (int(field) for field in path.read_text().split())
    except (OSError, ValueError):
        return 0, 0
    return pid, started


def _environ(process: Process) -> bytes:
    """Return the environment variables of a process; empty if they cannot be read.

    During exec they are empty for a moment, so the variables of a new process are read again.
    """
    for _ in range(_READ_TRIES if _age_seconds(process) < _EXEC_SECONDS else 1):
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                variables = file.read()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return b""  # the process has ended, or belongs to another user
        if variables or process.parent == _KTHREADD:  # kernel threads have no variables
            return variables + b"\0"
        time.sleep(_RETRY_SECONDS)
    return b""


def _age_seconds(process: Process) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / TICKS_PER_SECOND


def _kill(found: list[Process], deadline: float) -> bool:
    """Kill processes, and wait until they have ended or `deadline`. Return False if none could be watched."""
    dying = [fd for process in found if (fd := _kill_one(process)) is not None]
    poll = select.poll()
    for fd in dying:
        poll.register(fd, select.POLLIN)
    alive = len(dying)
    while alive and (now := time.monotonic()) < deadline:
        for fd, _ in poll.poll((deadline - now) * 1000):
            poll.unregister(fd)
            alive -= 1
    for fd in dying:
        os.close(fd)
    return bool(dying)


def _kill_one(process: Process) -> int | None:
    """Send SIGKILL to exactly this process.

    Return a descriptor that becomes readable when it has ended; None if it does not exist or cannot be signalled.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return None
    try:
        if _exists(process):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        return fd
    except OSError:
        os.close(fd)
        return None

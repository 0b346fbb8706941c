"""Processes of this machine: who they are, to which rank they belong, and how to end them for certain.

A process is known by its pid and its start time, so a pid that was given to somebody else is never mistaken for it. A
rank's processes carry HAI_CONTROL_FILE, which names the rank's directory: two clusters on one machine stay apart.
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
_YOUNG_SECONDS, _LOOKS, _LOOK_SECONDS = 1.0, 10, 0.001
_MARK = b"\0" + env.CONTROL_FILE.encode() + b"="


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc/PID/stat. `started` (clock ticks since boot) and `pid` together are an identity."""

    pid: int
    parent: int
    session: int
    started: int
    cpu_ticks: int
    resident_bytes: int


def look(pid: int) -> Process | None:
    """The process, or None when it is gone or only a zombie is left of it. Raises OSError when nobody can tell."""
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


def everybody() -> Iterator[Process]:
    """All processes of the machine."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := look(int(name))) is not None:
            yield process


def descendants(pid: int) -> list[Process]:
    """Children of `pid`, their children, and so on."""
    children: dict[int, list[Process]] = {}
    for process in everybody():
        children.setdefault(process.parent, []).append(process)
    found, queue = [], children.get(pid, [])
    while queue:
        process = queue.pop()
        found.append(process)
        queue.extend(children.get(process.pid, []))
    return found


def marks(below: Path) -> Iterator[tuple[Process, Path]]:
    """Processes whose control file lies below a directory, each with the directory of its rank; never ourselves."""
    needle = _MARK + os.fsencode(below) + b"/"
    for process in everybody():
        variables = b"\0" + _environ(process)
        at = variables.find(needle)
        if at >= 0 and process.pid != os.getpid():
            path = variables[at + len(_MARK) : variables.find(b"\0", at + 1)]
            yield process, Path(os.fsdecode(path)).parent


def end(find: Callable[[], Iterable[Process]], within: float = 10.0) -> list[Process]:
    """SIGKILL what `find` finds, until it finds nothing; answers what is still there after `within` seconds."""
    deadline = time.monotonic() + within
    while found := list(find()):
        if time.monotonic() >= deadline:
            return found
        if not _kill(found, deadline) and (there := [p for p in found if _exists(p)]):
            return there  # no descriptor can be had to watch them die
    return []


def _exists(process: Process) -> bool:
    now = look(process.pid)
    return now is not None and now.started == process.started


def remember(path: Path, pid: int) -> None:
    """Write down who `pid` is."""
    process = look(pid)
    path.write_text(f"{pid} {process.started if process else 0}\n")


def recall(path: Path) -> Process | None:
    """The process that was written down there, if it is still the same one."""
    pid, started = _written(path)
    process = look(pid) if pid else None
    return process if process is not None and process.started == started else None


def session_of(path: Path) -> list[Process]:
    """Members of the session that the process written down there leads, or led: its pid is not reused meanwhile."""
    pid, started = _written(path)
    leader = look(pid) if pid else None
    if not pid or (leader is not None and leader.started != started):
        return []
    return [p for p in everybody() if p.session == pid and p.started >= started]


def _written(path: Path) -> tuple[int, int]:
    try:
        pid, started = (int(word) for word in path.read_text().split())
    except (OSError, ValueError):
        return 0, 0
    return pid, started


def _environ(process: Process) -> bytes:
    """Its variables; a process that is just executing a program shows none for a moment: look again."""
    for _ in range(_LOOKS if _age_seconds(process) < _YOUNG_SECONDS else 1):
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                variables = file.read()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return b""  # gone, or another user's
        if variables or process.parent == _KTHREADD:  # the kernel's threads have none
            return variables + b"\0"
        time.sleep(_LOOK_SECONDS)
    return b""


def _age_seconds(process: Process) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / TICKS_PER_SECOND


def _kill(found: list[Process], deadline: float) -> bool:
    dying = [fd for process in found if (fd := _strike(process)) is not None]
    poll = select.poll()
    for fd in dying:
        poll.register(fd, select.POLLIN)
    left = len(dying)
    while left and (now := time.monotonic()) < deadline:
        for fd, _ in poll.poll((deadline - now) * 1000):
            poll.unregister(fd)
            left -= 1
    for fd in dying:
        os.close(fd)
    return bool(dying)


def _strike(process: Process) -> int | None:
    """SIGKILL this very process; answers a descriptor that becomes readable when it is dead."""
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

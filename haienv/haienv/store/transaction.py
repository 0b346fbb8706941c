"""What makes changes whole: a place to build in that nobody reads, one rename to publish, a lease while it happens."""

from __future__ import annotations

import errno
import os
import platform
import secrets
import shlex
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from haienv.errors import FULL, Busy, Denied, NoRoom
from haienv.store.layout import BUILDING, CACHE, LOCK, TRASH, Home
from haienv.store.untrusted_io import entries

WAY = 0o711
"""Of a directory that others walk through: to what is below, by its name."""
_PATIENCE_SECONDS = 60
_LEASE_SECONDS = 20
_FOREIGN_SECONDS = 24 * 3600
_EMPTY_SECONDS = 1
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def make_own(home: Home) -> None:
    """The caller's directory; others may walk through it, names and layers say who sees what."""
    try:
        with readable():
            home.own.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Denied(
            f"{home.own} cannot be made: {error.strerror}", "set HAIENV_HOME to a place of yours"
        ) from error


@contextmanager
def readable() -> Iterator[None]:
    """What is made inside can be read by all, whatever the account's umask; directories above say who gets there."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def building(home: Home) -> Iterator[Path]:
    """An empty directory that is gone afterwards, with what was not renamed out of it."""
    work = fresh(home, BUILDING)
    try:
        yield work
    finally:
        delete(work)


def fresh(home: Home, kind: str) -> Path:
    """A new private directory. Its name tells whose it is, so that remains of dead processes can be told."""
    make_own(home)
    name = f"{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
    path = home.own / kind / name
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
    except PermissionError as error:
        raise Denied(f"{home.own} is not yours to change") from error
    _require_own(home, path)
    return path


def _machine() -> str:
    """Where a number names one process: containers may have the name of their node, and numbers of their own."""
    numbers = ""
    with suppress(OSError):
        numbers = f".{os.stat('/proc/self/ns/pid').st_ino}"
    return f"{platform.node() or 'host'}{numbers}"


def alive(path: Path) -> bool:
    """Is the process at work that made it? Of another machine it is thought so for a day."""
    machine, _, number = path.name.rpartition("-")[0].rpartition("-")
    if machine == _machine() and number.isdigit():
        return os.path.exists(f"/proc/{number}") if os.path.isdir("/proc/self") else True
    try:
        return time.time() - path.stat().st_mtime < _FOREIGN_SECONDS
    except OSError:
        return False


def at_work(home: Home) -> list[Path]:
    """Directories that processes of the caller, here or elsewhere, are building in."""
    return [Path(e.path) for e in entries(home.own / BUILDING) if alive(Path(e.path))]


def _require_own(home: Home, made: Path) -> None:
    """Who made the directory can put anything into it; whose it is, a file of ours tells (NFS may rename all users)."""
    top, ours = home.own.lstat(), made.lstat().st_uid
    if not stat.S_ISDIR(top.st_mode) or (top.st_uid not in (0, ours) and ours != 0):
        made.rmdir()
        raise Denied(
            f"{home.own} was made by uid {top.st_uid}, who could change what is in it",
            "an operator must remove it, or give it to you",
        )


@contextmanager
def committing(home: Home) -> Iterator[None]:
    """The only critical section: what decides which name means what. Milliseconds, never a build."""
    from filelock import SoftFileLease, Timeout

    _clear_empty(home.own / LOCK)
    lease = SoftFileLease(home.own / LOCK, lease_duration=_LEASE_SECONDS, timeout=_PATIENCE_SECONDS)
    try:
        held = lease.acquire()
    except Timeout as error:
        raise Busy(
            f"somebody holds {home.own / LOCK} for a minute",
            "the file tells which process of which host",
        ) from error
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise NoRoom(
            f"{home.own} has no room, not even for a lock: {os.strerror(error.errno)}",
            f"wheels can be had again: rm -r {shlex.quote(str(home.own / CACHE))}; then haienv can remove and gc",
        ) from error
    with held:
        yield


def _clear_empty(path: Path) -> None:
    """One that is killed just when it has made the file leaves it empty, and filelock would wait for ever."""
    first = _empty(path)
    if first is None:
        return
    time.sleep(_EMPTY_SECONDS)  # it is empty for microseconds otherwise
    aside = path.with_name(f"{LOCK}.{secrets.token_hex(4)}")
    if _empty(path) == first:
        with suppress(FileNotFoundError):
            path.rename(aside)
            if _empty(aside) == first:
                aside.unlink()
            else:  # somebody took it in between
                aside.rename(path)


def _empty(path: Path) -> int | None:
    """The number of an empty file; None: it is not there, or not empty."""
    with suppress(OSError):
        facts = path.lstat()
        return facts.st_ino if stat.S_ISREG(facts.st_mode) and not facts.st_size else None
    return None


def replace_text(path: Path, text: str) -> None:
    """Write a file as a whole: a reader sees the old one or the new one."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(beside, "x", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)  # the directory says who comes in
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def replace_link(path: Path, target: str) -> None:
    """Let a link point elsewhere at once."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.symlink_to(target)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def publish(source: Path, target: Path) -> bool:
    """Rename a complete directory to its place; False: there is one already."""
    with readable():
        target.parent.mkdir(mode=WAY, exist_ok=True)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def put_away(home: Home, path: Path) -> Path:
    """Out of sight at once; what is returned is for `delete`, which takes longer than a lease should."""
    trash = fresh(home, TRASH)
    path.rename(trash / "it")
    return trash


def delete(path: Path) -> None:
    """A whole tree; directories that were made read-only are opened first."""
    for folder, _, _ in os.walk(path):
        if not os.access(folder, os.W_OK):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)

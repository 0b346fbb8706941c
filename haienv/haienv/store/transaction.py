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

from haienv.errors import DISK_FULL_ERRNOS, Busy, Denied, DiskFull
from haienv.store.layout import BUILDING_DIR, CACHE_DIR, LEASE_FILE, TRASH_DIR, Home
from haienv.store.untrusted_io import entries

TRAVERSABLE = 0o711
"""Of a directory that others walk through: to what is below, by its name."""
_LEASE_TIMEOUT_SECONDS = 60
_LEASE_SECONDS = 20
_OTHER_HOST_SECONDS = 24 * 3600
_EMPTY_LEASE_SECONDS = 1
_EXISTS_ERRNOS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def make_user_dir(home: Home) -> None:
    """The caller's directory; others may walk through it, names and layers say who sees what."""
    try:
        with world_readable():
            home.user_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Denied(
            f"{home.user_dir} cannot be made: {error.strerror}",
            "set HAIENV_HOME to a place of yours",
        ) from error


@contextmanager
def world_readable() -> Iterator[None]:
    """What is made inside can be read by all, whatever the account's umask; directories above say who gets there."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def build_directory(home: Home) -> Iterator[Path]:
    """An empty directory that is gone afterwards, with what was not renamed out of it."""
    work = new_private_dir(home, BUILDING_DIR)
    try:
        yield work
    finally:
        delete_tree(work)


def new_private_dir(home: Home, kind: str) -> Path:
    """A new private directory. Its name tells whose it is, so that remains of dead processes can be told."""
    make_user_dir(home)
    name = f"{_machine_id()}-{os.getpid()}-{secrets.token_hex(4)}"
    path = home.user_dir / kind / name
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
    except PermissionError as error:
        raise Denied(f"{home.user_dir} is not yours to change") from error
    _require_trusted_owner(home, path)
    return path


def _machine_id() -> str:
    """Where a number names one process: containers may have the name of their node, and numbers of their own."""
    numbers = ""
    with suppress(OSError):
        numbers = f".{os.stat('/proc/self/ns/pid').st_ino}"
    return f"{platform.node() or 'host'}{numbers}"


def is_process_alive(path: Path) -> bool:
    """Is the process at work that made it? Of another machine it is thought so for a day."""
    machine, _, number = path.name.rpartition("-")[0].rpartition("-")
    if machine == _machine_id() and number.isdigit():
        return os.path.exists(f"/proc/{number}") if os.path.isdir("/proc/self") else True
    try:
        return time.time() - path.stat().st_mtime < _OTHER_HOST_SECONDS
    except OSError:
        return False


def active_builds(home: Home) -> list[Path]:
    """Directories that processes of the caller, here or elsewhere, are building in."""
    return [
        Path(e.path)
        for e in entries(home.user_dir / BUILDING_DIR)
        if is_process_alive(Path(e.path))
    ]


def _require_trusted_owner(home: Home, made: Path) -> None:
    """Who made the directory can put anything into it; whose it is, a file of ours tells (NFS may rename all users)."""
    top, ours = home.user_dir.lstat(), made.lstat().st_uid
    if not stat.S_ISDIR(top.st_mode) or (top.st_uid not in (0, ours) and ours != 0):
        made.rmdir()
        raise Denied(
            f"{home.user_dir} was made by uid {top.st_uid}, who could change what is in it",
            "an operator must remove it, or give it to you",
        )


@contextmanager
def committing(home: Home) -> Iterator[None]:
    """The only critical section: what decides which name means what. Milliseconds, never a build."""
    from filelock import SoftFileLease, Timeout

    _clear_empty(home.user_dir / LEASE_FILE)
    lease = SoftFileLease(
        home.user_dir / LEASE_FILE, lease_duration=_LEASE_SECONDS, timeout=_LEASE_TIMEOUT_SECONDS
    )
    try:
        guard = lease.acquire()
    except Timeout as error:
        raise Busy(
            f"somebody holds {home.user_dir / LEASE_FILE} for a minute",
            "the file tells which process of which host",
        ) from error
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise DiskFull(
            f"{home.user_dir} has no space left, not even for a lock: {os.strerror(error.errno)}",
            f"delete the cache of wheels: rm -r {shlex.quote(str(home.user_dir / CACHE_DIR))}; "
            "then haienv can remove and gc",
        ) from error
    with guard:
        yield


def _clear_empty(path: Path) -> None:
    """One that is killed just when it has made the file leaves it empty, and filelock would wait for ever."""
    first = _empty(path)
    if first is None:
        return
    time.sleep(_EMPTY_LEASE_SECONDS)  # it is empty for microseconds otherwise
    aside = path.with_name(f"{LEASE_FILE}.{secrets.token_hex(4)}")
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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)  # the directory says who comes in
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_link(path: Path, target: str) -> None:
    """Let a link point elsewhere at once."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.symlink_to(target)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def publish(source: Path, target: Path) -> bool:
    """Rename a complete directory to its place; False: there is one already."""
    with world_readable():
        target.parent.mkdir(mode=TRAVERSABLE, exist_ok=True)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in _EXISTS_ERRNOS:
            return False
        raise
    return True


def move_to_trash(home: Home, path: Path) -> Path:
    """Out of sight at once; what is returned is for `delete`, which takes longer than a lease should."""
    trash = new_private_dir(home, TRASH_DIR)
    path.rename(trash / "it")
    return trash


def delete_tree(path: Path) -> None:
    """A whole tree; directories that were made read-only are opened first."""
    for folder, _, _ in os.walk(path):
        if not os.access(folder, os.W_OK):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)

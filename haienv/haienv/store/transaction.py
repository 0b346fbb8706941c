"""Makes changes atomic: with private build directories, publication by one rename, and a lease of each user."""

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
from haienv.store.untrusted_io import list_entries

TRAVERSABLE = 0o711
"""Mode of a directory that other users may traverse but not list."""
_LEASE_TIMEOUT_SECONDS = 60
_LEASE_SECONDS = 20
_OTHER_HOST_SECONDS = 24 * 3600
_EMPTY_LEASE_SECONDS = 1
_TRASHED_NAME = "it"
_EXISTS_ERRNOS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def make_user_dir(home: Home) -> None:
    """Create the caller's directory. The modes of the environments and layers in it limit access."""
    try:
        with world_readable():
            home.user_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Denied(
            f"{home.user_dir} cannot be created: {error.strerror}",
            "set HAIENV_HOME to a directory of yours",
        ) from error


@contextmanager
def world_readable() -> Iterator[None]:
    """Create files with umask 022 within the block, whatever the account's umask is. Directories above limit access."""
    previous = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(previous)


@contextmanager
def build_directory(home: Home) -> Iterator[Path]:
    """Create a private directory for the block. Everything that the block has not moved out is deleted at its end."""
    work = new_private_dir(home, BUILDING_DIR)
    try:
        yield work
    finally:
        delete_tree(work)


def new_private_dir(home: Home, kind: str) -> Path:
    """Create a private directory. Its name contains host and pid, so that `is_process_alive` recognizes leftovers."""
    make_user_dir(home)
    name = f"{_machine_id()}-{os.getpid()}-{secrets.token_hex(4)}"
    path = home.user_dir / kind / name
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
    except PermissionError as error:
        raise Denied(f"{home.user_dir} belongs to another user") from error
    _require_trusted_owner(home, path)
    return path


def _machine_id() -> str:
    """Return host name and pid namespace: a container may have the host name of its node, but other pids."""
    namespace = ""
    with suppress(OSError):
        namespace = f".{os.stat('/proc/self/ns/pid').st_ino}"
    return f"{platform.node() or 'host'}{namespace}"


def is_process_alive(path: Path) -> bool:
    """Return True if the process that created a directory is alive. On other hosts, assume so for a day."""
    # The name is <machine>-<pid>-<random digits>; the machine may contain dashes.
    machine, _, number = path.name.rpartition("-")[0].rpartition("-")
    if machine == _machine_id() and number.isdigit():
        return os.path.exists(f"/proc/{number}") if os.path.isdir("/proc/self") else True
    try:
        return time.time() - path.stat().st_mtime < _OTHER_HOST_SECONDS
    except OSError:
        return False


def active_builds(home: Home) -> list[Path]:
    """Return the build directories of the caller's running processes, on any host."""
    return [
        Path(e.path)
        for e in list_entries(home.user_dir / BUILDING_DIR)
        if is_process_alive(Path(e.path))
    ]


def _require_trusted_owner(home: Home, new_dir: Path) -> None:
    """Raise Denied if another user owns the caller's directory, and so could change its contents.

    The owner is compared with that of a new directory, because NFS may map the caller to another uid.
    """
    status, caller_uid = home.user_dir.lstat(), new_dir.lstat().st_uid
    is_trusted = caller_uid == 0 or status.st_uid in (0, caller_uid)
    if not stat.S_ISDIR(status.st_mode) or not is_trusted:
        new_dir.rmdir()
        raise Denied(
            f"{home.user_dir} was made by uid {status.st_uid}, who could change its contents",
            "an operator must remove it, or give it to you",
        )


@contextmanager
def hold_lease(home: Home) -> Iterator[None]:
    """Hold the caller's lease, which is required for all changes of names. Never hold it during a build."""
    from filelock import SoftFileLease, Timeout

    _remove_empty_lease(home.user_dir / LEASE_FILE)
    lease = SoftFileLease(
        home.user_dir / LEASE_FILE, lease_duration=_LEASE_SECONDS, timeout=_LEASE_TIMEOUT_SECONDS
    )
    try:
        guard = lease.acquire()
    except Timeout as error:
        raise Busy(
            f"another process has held {home.user_dir / LEASE_FILE} for a minute",
            "the file names the host and the process",
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


def _remove_empty_lease(path: Path) -> None:
    """Remove an empty lease file. filelock would wait for it forever.

    A process that is killed right after it created the file leaves it empty.
    """
    inode = _empty_file_inode(path)
    if inode is None:
        return
    time.sleep(_EMPTY_LEASE_SECONDS)  # a running process fills the file within microseconds
    renamed = path.with_name(f"{LEASE_FILE}.{secrets.token_hex(4)}")
    if _empty_file_inode(path) == inode:
        with suppress(FileNotFoundError):
            path.rename(renamed)
            if _empty_file_inode(renamed) == inode:
                renamed.unlink()
            else:  # another process has acquired the lease in between
                renamed.rename(path)


def _empty_file_inode(path: Path) -> int | None:
    """Return the inode of an empty file; None if there is no file, or if it is not empty."""
    with suppress(OSError):
        status = path.lstat()
        return status.st_ino if stat.S_ISREG(status.st_mode) and not status.st_size else None
    return None


def replace_text(path: Path, text: str) -> None:
    """Replace a file atomically: readers see the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)  # the mode of the directory limits access
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_link(path: Path, target: str) -> None:
    """Replace a link atomically."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.symlink_to(target)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def publish(source: Path, target: Path) -> bool:
    """Rename a complete directory to its final name. Return False if that name exists already."""
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
    """Move a directory to the trash, and return its place there.

    Pass the result to `delete_tree` after the end of the lease, because deletion takes long.
    """
    trash = new_private_dir(home, TRASH_DIR)
    path.rename(trash / _TRASHED_NAME)
    return trash


def restore_from_trash(trash: Path, path: Path) -> None:
    """Move the directory that `move_to_trash` moved back to its path."""
    (trash / _TRASHED_NAME).rename(path)


def delete_tree(path: Path) -> None:
    """Delete a directory tree, including read-only directories."""
    for folder, _, _ in os.walk(path):
        if not os.access(folder, os.W_OK):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)

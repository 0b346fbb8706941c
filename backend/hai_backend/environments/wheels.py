"""Stores wheels that no index has, each once, in a directory that is named by the SHA-256 of the wheel.

The directory exists only once the wheel is complete. Its modification time is the last use of the wheel. Wheels that
are unused for long are deleted, and clients send them again when needed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hai_backend.domain.errors import Invalid, Violation

WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\.whl")
_COMPLETE_NAME = re.compile(r"[0-9a-f]{64}")
_PARTIAL_NAME = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
_UNUSED_SECONDS = 30 * 24 * 3600
_LEFTOVER_SECONDS = 24 * 3600  # no upload and no build takes that long
_MAX_WHEEL_BYTES = 8 << 30  # wheels with CUDA have gigabytes


class Wheels:
    """The wheels below `root`: <sha256>/<file name>."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_path(self, sha256: str) -> Path | None:
        """Return the path of a wheel, with its original file name; None if it is not stored."""
        return next((self._root / sha256).glob("*.whl"), None)

    def list_missing(self, hashes: Iterable[str]) -> list[str]:
        """Return the hashes of wheels that are not stored. The stored ones count as used now."""
        return [sha256 for sha256 in hashes if not self._touch(sha256)]

    def _touch(self, sha256: str) -> bool:
        with suppress(FileNotFoundError):
            os.utime(self._root / sha256)
        return self.find_path(sha256) is not None

    def delete_unused(self) -> int:
        """Delete partial uploads of killed servers, and wheels unused for 30 days. Return the bytes of the others."""
        delete_old_entries(self._root, _PARTIAL_NAME)
        delete_old_entries(self._root, _COMPLETE_NAME, _UNUSED_SECONDS)
        return sum(_file_size(path) for path in self._root.glob("*/*.whl"))

    def begin_upload(self, sha256: str, name: str) -> WheelUpload:
        """Begin an upload. Raise Invalid when the name is not that of a wheel."""
        if not WHEEL.fullmatch(name):
            raise _invalid_wheel(
                sha256, f"is called {name[:80]!r}, which is not the file name of a wheel"
            )
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return WheelUpload(self._root / sha256 / name)


class WheelUpload:
    """An upload of one wheel. Call `add` for its parts in order, then `finish`; call `discard` in any case."""

    def __init__(self, path: Path) -> None:
        self.sha256 = path.parent.name
        self._path = path
        self._partial = path.parent.with_suffix(f".{secrets.token_hex(8)}")
        self._file = self._partial.open("xb")
        self._hash = hashlib.sha256()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes. Raise Invalid when there are too many."""
        self._size += len(data)
        if self._size > _MAX_WHEEL_BYTES:
            raise _invalid_wheel(self.sha256, f"has more than {_MAX_WHEEL_BYTES} bytes")
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> None:
        """Store the wheel durably. Raise Invalid when its hash is not the announced one."""
        if (actual := self._hash.hexdigest()) != self.sha256:
            raise _invalid_wheel(self.sha256, f"has SHA-256 {actual}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.parent.mkdir(exist_ok=True)
        self._partial.replace(self._path)

    def discard(self) -> None:
        """Delete an incomplete upload; do nothing after `finish`."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def delete_old_entries(
    directory: Path, names: re.Pattern[str], seconds: float = _LEFTOVER_SECONDS
) -> None:
    """Delete the entries with such a name that are older than `seconds`. Other servers may be using newer ones."""
    with suppress(OSError):
        for path in directory.iterdir():
            if names.fullmatch(path.name):
                _delete_if_old(path, seconds)


def _delete_if_old(path: Path, seconds: float) -> None:
    """Delete an entry that is old enough.

    Errors are ignored: another server may have deleted the entry, or the entry belongs to another account.
    """
    with suppress(OSError):
        if time.time() - path.lstat().st_mtime < seconds:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _file_size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _invalid_wheel(sha256: str, message: str) -> Invalid:
    return Invalid((Violation(f"wheel[{sha256}]", message),), reason="BAD_WHEEL")

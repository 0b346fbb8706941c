"""Stores wheels that no index has, each once: in a directory named by the SHA-256 of its bytes, which exists only when
complete.

The time of the directory is when the wheel was last used: wheels that are unused for long are deleted, and sent again
when needed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.environments.garbage import sweep

WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\.whl")
_COMPLETE_NAME = re.compile(r"[0-9a-f]{64}")
_PARTIAL_NAME = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
_UNUSED_SECONDS = 30 * 24 * 3600
_MAX_WHEEL_BYTES = 8 << 30  # of one wheel; wheels with CUDA have gigabytes


class Wheels:
    """The wheels below `root`: <sha256>/<file name>."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, sha256: str) -> Path | None:
        """Returns the path of a wheel, with its original file name; None if it is not stored."""
        return next((self._root / sha256).glob("*.whl"), None)

    def missing(self, hashes: Iterable[str]) -> list[str]:
        """Returns the hashes that are not stored; the others count as used now."""
        return [sha256 for sha256 in hashes if not self._touch(sha256)]

    def _touch(self, sha256: str) -> bool:
        with suppress(FileNotFoundError):
            os.utime(self._root / sha256)
        return self.path(sha256) is not None

    def sweep(self) -> int:
        """Deletes partial uploads of killed servers, and wheels unused for 30 days. Returns the remaining bytes."""
        sweep(self._root, _PARTIAL_NAME)
        sweep(self._root, _COMPLETE_NAME, _UNUSED_SECONDS)
        return sum(_size(path) for path in self._root.glob("*/*.whl"))

    def receive(self, sha256: str, name: str) -> WheelUpload:
        """Begins an upload. Raises Invalid when the name is not that of a wheel."""
        if not WHEEL.fullmatch(name):
            raise _invalid_wheel(
                sha256, f"is called {name[:80]!r}, which is not the file name of a wheel"
            )
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return WheelUpload(self._root / sha256 / name)


class WheelUpload:
    """An upload of one wheel: `add` its parts in order, then `finish`; otherwise `discard` it."""

    def __init__(self, path: Path) -> None:
        self.sha256 = path.parent.name
        self._path = path
        self._partial = path.parent.with_suffix(f".{secrets.token_hex(8)}")
        self._file = self._partial.open("xb")
        self._hash = hashlib.sha256()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Adds the next bytes. Raises Invalid when there are too many."""
        self._size += len(data)
        if self._size > _MAX_WHEEL_BYTES:
            raise _invalid_wheel(self.sha256, f"has more than {_MAX_WHEEL_BYTES} bytes")
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> None:
        """Stores the wheel durably: it is not verified again. Raises Invalid when its hash is not the announced one."""
        if (found := self._hash.hexdigest()) != self.sha256:
            raise _invalid_wheel(self.sha256, f"has SHA-256 {found}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.parent.mkdir(exist_ok=True)
        self._partial.replace(self._path)

    def discard(self) -> None:
        """Deletes an incomplete upload; does nothing after `finish`."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _invalid_wheel(sha256: str, message: str) -> Invalid:
    return Invalid((Violation(f"wheel[{sha256}]", message),), reason="BAD_WHEEL")

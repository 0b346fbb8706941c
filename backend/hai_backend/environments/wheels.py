"""Wheels that no index has, kept once: in a directory named by the SHA-256 of its bytes, there once it is whole.

The time of the directory is when the wheel was last used: what nobody has used for long goes, and is sent again.
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
_WHOLE = re.compile(r"[0-9a-f]{64}")
_HALF = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
_UNUSED_SECONDS = 30 * 24 * 3600
_MOST_BYTES = 8 << 30  # of one; those of CUDA have gigabytes


class Wheels:
    """Below `root`: <sha256>/<file name>."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, sha256: str) -> Path | None:
        """A wheel by the name that it came with; None: it is not kept."""
        return next((self._root / sha256).glob("*.whl"), None)

    def missing(self, wanted: Iterable[str]) -> list[str]:
        """Those that are not kept; the others are used from now on."""
        return [sha256 for sha256 in wanted if not self._used(sha256)]

    def _used(self, sha256: str) -> bool:
        with suppress(FileNotFoundError):
            os.utime(self._root / sha256)
        return self.path(sha256) is not None

    def sweep(self) -> int:
        """Away with halves that a killed server has left, and what was not used for 30 days. Bytes that stay."""
        sweep(self._root, _HALF)
        sweep(self._root, _WHOLE, _UNUSED_SECONDS)
        return sum(_bytes(path) for path in self._root.glob("*/*.whl"))

    def receive(self, sha256: str, name: str) -> Receiving:
        """A wheel that comes in parts. Raises Invalid when the name is none of a wheel."""
        if not WHEEL.fullmatch(name):
            raise _refused(sha256, f"is called {name[:80]!r}, which is no file name of a wheel")
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Receiving(self._root / sha256 / name)


class Receiving:
    """One wheel on its way: `add` its parts in order, then `finish`; `drop` it otherwise."""

    def __init__(self, path: Path) -> None:
        self.sha256 = path.parent.name
        self._path = path
        self._partial = path.parent.with_suffix(f".{secrets.token_hex(8)}")
        self._file = self._partial.open("xb")
        self._hash = hashlib.sha256()
        self._bytes = 0

    def add(self, data: bytes) -> None:
        """The next bytes. Raises Invalid when there are too many."""
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES:
            raise _refused(self.sha256, f"has more than {_MOST_BYTES} bytes")
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> None:
        """Keep it, on the disk: nobody compares it again. Raises Invalid when its bytes are not those announced."""
        if (found := self._hash.hexdigest()) != self.sha256:
            raise _refused(self.sha256, f"has SHA-256 {found}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.parent.mkdir(exist_ok=True)
        self._partial.replace(self._path)

    def drop(self) -> None:
        """Away with what is not whole; nothing after `finish`."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def _bytes(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _refused(sha256: str, message: str) -> Invalid:
    return Invalid((Violation(f"wheel[{sha256}]", message),), reason="BAD_WHEEL")

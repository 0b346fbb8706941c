"""Reading files of somebody who may want to harm us: no link is followed, no pipe waited for, no size trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LIMIT = 256 * 1024
LOCK_LIMIT = 16 * 1024 * 1024


class Unreadable(Exception):
    """The file is not there, not ours to read, or not a file."""


def read_text(path: str | Path, limit: int = LIMIT) -> str:
    """The text of a regular file of bounded size."""
    data = read_bytes(path, limit)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path} is not text in UTF-8") from error


def read_bytes(path: str | Path, limit: int = LIMIT) -> bytes:
    """The bytes of a regular file of bounded size."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    try:
        return _bounded(file, path, limit)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    finally:
        os.close(file)


def _bounded(file: int, path: str | Path, limit: int) -> bytes:
    facts = os.fstat(file)
    if not stat.S_ISREG(facts.st_mode):
        raise Unreadable(f"{path} is not a regular file")
    if facts.st_size > limit:
        raise Unreadable(f"{path} is larger than {limit} bytes")
    parts: list[bytes] = []
    left = limit
    while left and (part := os.read(file, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def link_text(path: str | Path) -> str:
    """Where a link points, without going there."""
    try:
        return os.readlink(path)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def entries(path: str | Path) -> list[os.DirEntry[str]]:
    """What is in a directory, sorted by name; nothing when it cannot be read."""
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []

"""Reads files of untrusted users. No function follows links, blocks on pipes, or reads without a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

RECORD_LIMIT_BYTES = 256 * 1024
LOCK_LIMIT_BYTES = 16 * 1024 * 1024


class Unreadable(Exception):
    """The file does not exist, cannot be read, is too large, or is not a regular file."""


def read_text(path: str | Path, limit: int = RECORD_LIMIT_BYTES) -> str:
    """Return the text of a regular file of limited size."""
    data = read_bytes(path, limit)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path} is not UTF-8 text") from error


def read_text_or_empty(path: str | Path, limit: int = RECORD_LIMIT_BYTES) -> str:
    """Return the text of a regular file of limited size; empty if it cannot be read."""
    try:
        return read_text(path, limit)
    except Unreadable:
        return ""


def read_bytes(path: str | Path, limit: int = RECORD_LIMIT_BYTES) -> bytes:
    """Return the bytes of a regular file of limited size."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    try:
        return _read_bounded(file, path, limit)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    finally:
        os.close(file)


def _read_bounded(file: int, path: str | Path, limit: int) -> bytes:
    """Read an open file. Raise Unreadable if it is not a regular file, or is too large."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"{path} is not a regular file")
    if status.st_size > limit:
        raise Unreadable(f"{path} is larger than {limit} bytes")
    parts: list[bytes] = []
    remaining = limit
    while remaining and (part := os.read(file, min(remaining, 1 << 20))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def read_link(path: str | Path) -> str:
    """Return the target of a link, which is not followed."""
    try:
        return os.readlink(path)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def list_entries(path: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, sorted by name; empty if it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []

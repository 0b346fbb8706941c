"""Reads files of untrusted users: follows no links, does not block on pipes, and limits sizes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LIMIT = 256 * 1024
LOCK_LIMIT = 16 * 1024 * 1024


class Unreadable(Exception):
    """The file does not exist, is not readable, or is not a regular file."""


def read_text(path: str | Path, limit: int = LIMIT) -> str:
    """The text of a regular file of limited size."""
    data = read_bytes(path, limit)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path} is not UTF-8 text") from error


def text_or_empty(path: str | Path, limit: int = LIMIT) -> str:
    """The text of a regular file of limited size; empty if it cannot be read."""
    try:
        return read_text(path, limit)
    except Unreadable:
        return ""


def read_bytes(path: str | Path, limit: int = LIMIT) -> bytes:
    """The bytes of a regular file of limited size."""
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
    remaining = limit
    while remaining and (part := os.read(file, min(remaining, 1 << 20))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def link_text(path: str | Path) -> str:
    """The target of a link, which is not followed."""
    try:
        return os.readlink(path)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def entries(path: str | Path) -> list[os.DirEntry[str]]:
    """Entries of a directory, sorted by name; none if it cannot be read."""
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []

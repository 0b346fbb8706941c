"""Hashes the files of a scan whose content the sync needs."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hai_sync.core.entry import Entry, Kind
from hai_sync.errors import CHANGES_WHILE_READ, NOT_FOUND
from hai_sync.file_fingerprint import Fingerprint, fingerprint
from hai_sync.scan import Scan

THREADS = min(8, (os.cpu_count() or 1) + 2)
_READ_BYTES = 1 << 20
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_NOATIME = _READ_FLAGS | getattr(os, "O_NOATIME", 0)  # Linux only


def open_file(root: Path | str, path: str) -> int:
    """Open a file for reading. A symbolic link is not followed.

    O_NOATIME saves the update of the access time, which costs as much as the read. Only the owner may use it.
    """
    absolute = f"{root}/{path}"
    try:
        return os.open(absolute, _READ_NOATIME)
    except PermissionError:
        return os.open(absolute, _READ_FLAGS)


def hash_files(scan: Scan, paths: Sequence[str], threads: int = THREADS) -> None:
    """Hash files, several at a time. An unreadable file becomes a problem; a missing one is marked as removed."""
    if not paths:
        return
    from concurrent.futures import ThreadPoolExecutor

    if len(paths) < 3:
        results = [_hash(scan, path) for path in paths]
    else:
        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(lambda path: _hash(scan, path), paths, chunksize=16))
    for path, entry, file_fingerprint in results:
        if entry is None:
            scan.mark_removed(path)
            continue
        if entry.kind is Kind.PROBLEM:
            scan.add_problem(path, entry.target)
        else:
            scan.fingerprints[path] = file_fingerprint
            scan.changed[path] = entry
        scan.tree[path] = scan.changed[path]


def _hash(scan: Scan, path: str) -> tuple[str, Entry | None, Fingerprint]:
    try:
        return (path, *_hash_until_stable(scan, path))
    except NOT_FOUND:
        return path, None, b""
    except OSError as error:
        return path, Entry(Kind.PROBLEM, target=f"it cannot be read: {error.strerror}"), b""


def _hash_until_stable(scan: Scan, path: str) -> tuple[Entry, Fingerprint]:
    """Read a file up to three times, until it does not change meanwhile. A file that always changes is a problem."""
    entry = scan.changed.get(path) or scan.tree[path]
    for _ in range(3):
        file = open_file(scan.root, scan.copied_links.get(path, path))
        try:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode):
                return Entry(Kind.PROBLEM, target="it is not a regular file any more"), b""
            digest = compute_file_digest(file, before.st_size)
            after = os.fstat(file)
        finally:
            os.close(file)
        if fingerprint(before) == fingerprint(after):
            executable = bool(after.st_mode & 0o100)
            return replace(
                entry,
                digest=digest,
                size=after.st_size,
                executable=executable,
                mtime_ns=max(0, after.st_mtime_ns),
            ), fingerprint(after)
    return Entry(Kind.PROBLEM, target=CHANGES_WHILE_READ), b""


def compute_file_digest(file: int, size: int) -> bytes:
    """Return the BLAKE3 digest of an open file. A large file is hashed on all cores."""
    from blake3 import blake3

    if size <= _READ_BYTES:
        return blake3(read_all(file, size)).digest()
    state, block = blake3(max_threads=blake3.AUTO), memoryview(bytearray(8 * _READ_BYTES))
    while read := os.readv(file, [block]):
        state.update(block[:read])
    return state.digest()


def read_all(file: int, size: int) -> bytes:
    """Return all bytes of a file, with one read if it has the expected size."""
    data = os.read(file, size + 1)
    if len(data) <= size:
        return data
    parts = [data]
    while part := os.read(file, _READ_BYTES):
        parts.append(part)
    return b"".join(parts)

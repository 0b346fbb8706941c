"""Looks into files: what a scan has left unhashed, once somebody needs to know."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hai_sync.core.entry import Entry, Kind
from hai_sync.errors import CHANGING, GONE
from hai_sync.file_fingerprint import Signature, signature
from hai_sync.scan import Scan

THREADS = min(8, (os.cpu_count() or 1) + 2)
_READ_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRACELESS = _READ | getattr(os, "O_NOATIME", 0)  # Linux


def open_file(root: Path | str, path: str) -> int:
    """A file's descriptor; its last part is not followed if it is a link.

    Of a file that is ours the kernel need not write down when it was read, which costs as much as reading it.
    """
    at = f"{root}/{path}"
    try:
        return os.open(at, _TRACELESS)
    except PermissionError:
        return os.open(at, _READ)


def hash_files(found: Scan, paths: Sequence[str], threads: int = THREADS) -> None:
    """Look into files, several at a time. What cannot be read becomes a problem, what is gone by now vanishes."""
    if not paths:
        return
    from concurrent.futures import ThreadPoolExecutor

    if len(paths) < 3:
        results = [_hash(found, path) for path in paths]
    else:
        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(lambda path: _hash(found, path), paths, chunksize=16))
    for path, entry, seen in results:
        if entry is None:
            found.vanish(path)
            continue
        if entry.kind is Kind.PROBLEM:
            found.trouble(path, entry.target)
        else:
            found.signatures[path] = seen
            found.fresh[path] = entry
        found.tree[path] = found.fresh[path]


def _hash(found: Scan, path: str) -> tuple[str, Entry | None, Signature]:
    try:
        return (path, *_hash_until_still(found, path))
    except GONE:
        return path, None, b""
    except OSError as error:
        return path, Entry(Kind.PROBLEM, target=f"it cannot be read: {error.strerror}"), b""


def _hash_until_still(found: Scan, path: str) -> tuple[Entry, Signature]:
    """A file that changes while it is read is read again; at last it is said to be restless."""
    entry = found.fresh.get(path) or found.tree[path]
    for _ in range(3):
        file = open_file(found.root, found.copied.get(path, path))
        try:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode):
                return Entry(Kind.PROBLEM, target="it is no regular file any more"), b""
            digest = digest_of_file(file, before.st_size)
            after = os.fstat(file)
        finally:
            os.close(file)
        if signature(before) == signature(after):
            executable = bool(after.st_mode & 0o100)
            return replace(
                entry,
                digest=digest,
                size=after.st_size,
                executable=executable,
                mtime_ns=max(0, after.st_mtime_ns),
            ), signature(after)
    return Entry(Kind.PROBLEM, target=CHANGING), b""


def digest_of_file(file: int, size: int) -> bytes:
    """Of all that can be read; of a large file on all cores."""
    from blake3 import blake3

    if size <= _READ_BYTES:
        return blake3(read_all(file, size)).digest()
    state, block = blake3(max_threads=blake3.AUTO), memoryview(bytearray(8 * _READ_BYTES))
    while read := os.readv(file, [block]):
        state.update(block[:read])
    return state.digest()


def read_all(file: int, size: int) -> bytes:
    """A whole file, in one read if it has the size that it is said to have."""
    data = os.read(file, size + 1)
    if len(data) <= size:
        return data
    parts = [data]
    while part := os.read(file, _READ_BYTES):
        parts.append(part)
    return b"".join(parts)

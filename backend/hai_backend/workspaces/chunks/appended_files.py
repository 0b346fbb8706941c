"""Versions of files that have only grown since, as logs do: the file begins with each of them."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from stat import S_ISREG

from hai_backend.workspaces.contents import Contents, copy_range, digest_of, open_in, opened
from hai_backend.workspaces.index import Index
from hai_backend.workspaces.storage.directories import Directories

_PLACES = "SELECT DISTINCT folder, name, size FROM entries WHERE kind = 1 AND digest = ?"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def find(index: Index, tree: Directories, scratch: Contents, digest: bytes) -> int | None:
    """A file of this content, open for reading, which is a copy and has no name; None: nothing begins with it."""
    for folder, name, size in index.rows(_PLACES, (digest,)):
        file = _longer(tree, folder, name, size)
        if file is None:
            continue
        with opened(file):
            copy = _beginning(file, size, scratch)
        if digest_of(copy) == digest:
            return copy
        os.close(copy)
    return None


def _longer(tree: Directories, folder: str, name: str, size: int) -> int | None:
    with suppress(OSError):
        file = open_in(tree.at(folder), name)
        now = os.fstat(file)
        if S_ISREG(now.st_mode) and now.st_size > size:
            return file
        os.close(file)
    return None


def _beginning(file: int, size: int, scratch: Contents) -> int:
    name = f"grown.{secrets.token_hex(8)}"  # what a crash leaves of it goes as all that has a dot
    copy = os.open(name, _NEW, 0o600, dir_fd=scratch.folder)
    scratch.remove(name)
    try:
        copy_range(file, 0, copy, 0, size)
    except BaseException:
        os.close(copy)
        raise
    return copy

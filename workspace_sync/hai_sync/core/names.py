"""Validates paths, and names conflict copies.

A synced tree must be valid on every machine. Names that are too long or not in Unicode's normal form C are refused
with a list before anything is sent. Names that differ only in case are refused if a side ignores case (`guards`).
Names from a server are validated like names from a disk.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from hai_sync.core.entry import Entry, Kind, Tree, parent
from hai_sync.core.links import is_outward

MAX_NAME_BYTES = 255
_MAX_SUFFIX = 32  # characters; a longer part after the last dot is not a suffix
MAX_PATH_BYTES = 3000  # leaves room for the path of the root on the server
MAX_PARTS = 100
PRIVATE_DIR = ".hfai"
"""The directory in the root of a workspace that holds its configuration. It is never synced."""

_SURROGATES = re.compile("[\ud800-\udfff]")


def path_error(path: str) -> str:
    """Return why a path cannot be synced, or an empty string."""
    if not path or path.startswith("/"):
        return "it is not a relative path"
    if "\0" in path:
        return "it has a NUL in it"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "it has an empty part, . or .."
    if not is_text(path):
        return "its name is not UTF-8; rename it"
    if not path.isascii() and not unicodedata.is_normalized("NFC", path):
        return "its name is not in Unicode's normal form C; rename it"
    return _too_long(path, path.encode())


def is_text(path: str) -> bool:
    """Return whether a path is UTF-8. Python represents other bytes as surrogates, which cannot be stored or sent."""
    return path.isascii() or _SURROGATES.search(path) is None


def _too_long(path: str, encoded: bytes) -> str:
    if len(encoded) > MAX_PATH_BYTES:
        return f"its path is longer than {MAX_PATH_BYTES} bytes"
    if path.count("/") >= MAX_PARTS:
        return f"it lies in more than {MAX_PARTS - 1} directories"
    if len(encoded) > MAX_NAME_BYTES and any(
        len(p.encode()) > MAX_NAME_BYTES for p in path.split("/")
    ):
        return f"its name is longer than {MAX_NAME_BYTES} bytes"
    return ""


def is_private(path: str) -> bool:
    """Return whether a path is in the private directory, which is never synced."""
    return path == PRIVATE_DIR or path.startswith(PRIVATE_DIR + "/")


def link_error(path: str, target: str) -> str:
    """Return why a symbolic link cannot be synced, or an empty string. The link is not followed."""
    if not target or "\0" in target:
        return "it is a link to nowhere"
    if not is_text(target):
        return "it is a link to a name that is not UTF-8"
    if is_outward(path, target) and not target.startswith("/"):
        return f"it is a link out of the workspace, to {target}"
    return ""


def case_folded(path: str) -> str:
    """Return a text that is equal for paths that are the same on a file system that ignores case."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def tree_error(tree: Tree) -> str:
    """Return why a received tree is invalid, or an empty string."""
    for path, entry in tree.items():
        reason = path_error(path) or (is_private(path) and "it is private to each side")
        if entry.kind is Kind.SYMLINK:
            reason = reason or link_error(path, entry.target)
        above = tree.get(parent(path)) if "/" in path else None
        if "/" in path and (above is None or above.kind is not Kind.DIRECTORY):
            reason = reason or f"{parent(path)} is not a directory"
        if reason:
            return f"{path!r}: {reason}"
    return ""


def conflict_copy_name(path: str, entry: Entry, is_taken: Callable[[str], bool]) -> str:
    """Return the path of a conflict copy: beside the original, and equal for equal content."""
    folder, name = parent(path), path.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix) > _MAX_SUFFIX:
        stem, dot, suffix = name, "", ""
    marker = f".conflict-{entry.digest.hex()[:8] or entry.kind.name.lower()}"
    available = MAX_NAME_BYTES - len((marker + dot + suffix).encode()) - 4
    stem = stem.encode()[:available].decode(errors="ignore")
    return _first_free(folder + "/" if folder else "", f"{stem}{marker}", dot + suffix, is_taken)


def _first_free(folder: str, stem: str, end: str, is_taken: Callable[[str], bool]) -> str:
    path, number = f"{folder}{stem}{end}", 1
    while is_taken(path):
        number += 1
        path = f"{folder}{stem}-{number}{end}"
    return path

"""Which names may travel, and how a conflict copy is called.

A tree that is synced must fit every other machine: names that are too long or not in Unicode's normal form C are
refused with a list before anything is sent. Names that differ only in case are refused where a side ignores case
(`twins`). What a server says about names is trusted no more than what a disk says.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from hai_sync.core.entry import Entry, Kind, Tree, parent
from hai_sync.core.links import leads_out

NAME_BYTES = 255
_SUFFIX = 32  # characters; what is longer behind the last dot is part of the name
PATH_BYTES = 3000  # the server's root comes before it
PARTS = 100
OWN = ".hfai"
"""The directory in a workspace's root that holds what is ours; never synced."""

_NO_TEXT = re.compile("[\ud800-\udfff]")
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul"] + [f"{p}{n}" for p in ("com", "lpt") for n in range(1, 10)]
)


def fault(path: str) -> str:
    """Why a path must not travel; empty: it may."""
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
    """False for bytes that are not UTF-8, which Python's names hold and nothing can store or send."""
    return path.isascii() or _NO_TEXT.search(path) is None


def _too_long(path: str, encoded: bytes) -> str:
    if len(encoded) > PATH_BYTES:
        return f"its path is longer than {PATH_BYTES} bytes"
    if path.count("/") >= PARTS:
        return f"it lies in more than {PARTS - 1} directories"
    if len(encoded) > NAME_BYTES and any(len(p.encode()) > NAME_BYTES for p in path.split("/")):
        return f"its name is longer than {NAME_BYTES} bytes"
    return ""


def is_own(path: str) -> bool:
    """True for what is the tool's and stays here."""
    return path == OWN or path.startswith(OWN + "/")


def link_fault(path: str, target: str) -> str:
    """Why a symbolic link must not travel; empty: it may. Nothing is followed."""
    if not target or "\0" in target:
        return "it is a link to nowhere"
    if not is_text(target):
        return "it is a link to a name that is not UTF-8"
    if leads_out(path, target) and not target.startswith("/"):
        return f"it is a link out of the workspace, to {target}"
    return ""


def folded(path: str) -> str:
    """Equal for paths that a file system without case takes for the same."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def reserved(path: str) -> bool:
    """True for names that Windows cannot hold; they travel, and are told."""
    name = path.rpartition("/")[2]
    return name.partition(".")[0].lower() in _RESERVED or name[-1:] in (".", " ")


def tree_fault(tree: Tree) -> str:
    """Why a tree that came from elsewhere is not one; empty: it is."""
    for path, entry in tree.items():
        why = fault(path) or (is_own(path) and "it is private to each side")
        if entry.kind is Kind.SYMLINK:
            why = why or link_fault(path, entry.target)
        above = tree.get(parent(path)) if "/" in path else None
        if "/" in path and (above is None or above.kind is not Kind.DIRECTORY):
            why = why or f"{parent(path)} is not a directory"
        if why:
            return f"{path!r}: {why}"
    return ""


def copy_name(path: str, entry: Entry, taken: Callable[[str], bool]) -> str:
    """A conflict copy's name: beside the original, the same for the same content."""
    folder, name = parent(path), path.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix) > _SUFFIX:
        stem, dot, suffix = name, "", ""
    mark = f".conflict-{entry.digest.hex()[:8] or entry.kind.name.lower()}"
    keep = NAME_BYTES - len((mark + dot + suffix).encode()) - 4
    stem = stem.encode()[:keep].decode(errors="ignore")
    return _free(folder + "/" if folder else "", f"{stem}{mark}", dot + suffix, taken)


def _free(folder: str, stem: str, end: str, taken: Callable[[str], bool]) -> str:
    path, number = f"{folder}{stem}{end}", 1
    while taken(path):
        number += 1
        path = f"{folder}{stem}-{number}{end}"
    return path

"""Validates the paths of mounts: absolute, normalized, and not below a directory of the platform.

The rules are applied to the template when a row is written, and to the path that results for a task.
"""

from __future__ import annotations

import re

from hai_backend.domain.mounts.variables import Problem

SHARED_MEMORY = "/dev/shm"
"""Every rank has this directory. A tmpfs that is mounted there replaces it."""

_CHARS = 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OURS = ("/hai", "/proc", "/sys", "/etc", "/dev/shm", "/dev/pts", "/dev/mqueue")
_TOKENS = "/var/run/secrets/kubernetes.io"


def check_path(text: str, start: int = 1) -> str:
    """Return an absolute path without a trailing slash. Raises Problem. `start` is the column of the first
    character.
    """
    if not text.startswith("/"):
        raise Problem(start, f"{text[:40]!r} must begin with a slash")
    return "/" + check_relative_path(text.removesuffix("/")[1:], start + 1)


def check_relative_path(text: str, start: int = 1) -> str:
    """Return a relative path if it is valid. Raises Problem."""
    if len(text) > _CHARS:
        raise Problem(start, f"a path has at most {_CHARS} characters, not {len(text)}")
    if found := _CONTROL.search(text):
        raise Problem(start + found.start(), "a path contains no control characters")
    column = start
    for part in text.split("/"):
        if part in ("", ".", ".."):
            raise Problem(column, f"{part!r} is no name: write the path out, without // and dots")
        column += len(part) + 1
    return text


def check_root(text: str, start: int = 1) -> None:
    """Raise Problem if a placeholder is in the first directory."""
    first = text.split("/")[1] if text.count("/") else text
    if "{" in first:
        raise Problem(start + text.index("{"), "the first directory must be written out")


def check_target(path: str, *, shared_memory: bool) -> None:
    """Raise Problem if nothing may be mounted at this path of a rank."""
    if ":" in path:
        raise Problem(path.index(":") + 1, "a mount path contains no colon")
    if shared_memory and path == SHARED_MEMORY:
        return
    for ours in (*_OURS, _TOKENS):
        if path == ours or path.startswith(f"{ours}/"):
            raise Problem(1, f"{path!r} is the platform's: nothing may be mounted at {ours}")
    if path in ("/dev", "/var", "/var/run", "/run"):
        raise Problem(1, f"{path!r} would hide what every program needs")

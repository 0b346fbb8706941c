"""Directories of the platform's that tasks see: parts of `shared`, the one directory that servers have in common.

A rank sees them at the path that they have on the server, in pods too: a path that is kept anywhere (in a checkpoint,
in the scripts of an environment) is the same everywhere. A pod sees only those of its own task; the rest of `shared`
(the admin's token, others' logs) is never in it.

No directory above `below` may be writable by users: what mounts it follows their links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hai_backend.domain.mounts.mount import MountKind
from hai_backend.domain.mounts.sources import checked_source
from hai_backend.domain.mounts.variables import Problem

_KINDS = (MountKind.PVC, MountKind.NFS, MountKind.HOST_PATH)


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """The part of `shared` that lies `below` it. One that may be written is its task's own."""

    below: str
    read_only: bool = False
    mode: int = 0o700


Seen = Callable[[SharedDirectory], str]
"""Where a rank sees such a directory; empty: not at all."""


def checkpoints_of(task_id: int) -> SharedDirectory:
    """What is kept over all runs of a task."""
    return SharedDirectory(f"checkpoints/{task_id}")


def container_of(task_id: int) -> SharedDirectory:
    """Where people work in a dev container; it outlives the container's runs."""
    return SharedDirectory(f"containers/{task_id}")


def checked_volume(text: str) -> tuple[MountKind, str]:
    """Kind and source of the volume that `shared` is, written as kind:source. Raises Problem."""
    word, _, source = text.partition(":")
    for kind in _KINDS:
        if kind.value == word:
            return kind, checked_source(kind, source)
    known = ", ".join(f"{kind.value}:…" for kind in _KINDS)
    raise Problem(1, f"{text[:40]!r} must be one of {known}")

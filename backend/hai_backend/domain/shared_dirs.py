"""The platform's directories that tasks see: parts of `shared`, the directory that all servers have in common.

A rank sees them at the same path as the server, also in pods, so that stored paths (in a checkpoint, in the scripts of
an environment) are valid everywhere. A pod sees only those of its own task, and nothing else of `shared` (the admin's
token, other users' logs).

No directory above `below` may be writable by users, because mounting follows links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hai_backend.domain.mounts.mount import MountKind
from hai_backend.domain.mounts.sources import check_source
from hai_backend.domain.mounts.variables import Problem

_KINDS = (MountKind.PVC, MountKind.NFS, MountKind.HOST_PATH)


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """The directory `below` (a relative path) of `shared`. A writable one belongs to one task."""

    below: str
    read_only: bool = False
    mode: int = 0o700


PathInRank = Callable[[SharedDirectory], str]
"""Returns the path at which a rank sees such a directory; empty: not visible."""


def checkpoints_of(task_id: int) -> SharedDirectory:
    """The checkpoints of a task, for all of its runs."""
    return SharedDirectory(f"checkpoints/{task_id}")


def container_of(task_id: int) -> SharedDirectory:
    """The working directory of a dev container; it outlives the container's runs."""
    return SharedDirectory(f"containers/{task_id}")


def parse_volume(text: str) -> tuple[MountKind, str]:
    """Parse the volume of `shared`, written as kind:source. Raises Problem."""
    kind_text, _, source = text.partition(":")
    for kind in _KINDS:
        if kind.value == kind_text:
            return kind, check_source(kind, source)
    kinds = ", ".join(f"{kind.value}:…" for kind in _KINDS)
    raise Problem(1, f"{text[:40]!r} must be one of {kinds}")

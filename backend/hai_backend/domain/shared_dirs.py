"""The directories of the platform that tasks see. They are parts of `shared`, the directory that all servers share.

A rank sees them at the same path as the server, in pods too, so that stored paths (in a checkpoint, in the scripts of
an environment) are valid everywhere. A pod sees only the directories of its own task: other parts of `shared` hold the
admin's token and the logs of other users.

Users must not be able to write to any directory above `below`, because mounting follows links.
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
    """The directory at the relative path `below` in `shared`. A writable directory belongs to one task."""

    below: str
    read_only: bool = False
    mode: int = 0o700


PathInRank = Callable[[SharedDirectory], str]
"""Returns the path at which a rank sees a directory, or an empty text if the rank does not see it."""


def checkpoints_of(task_id: int) -> SharedDirectory:
    """Return the directory for the checkpoints of all runs of a task."""
    return SharedDirectory(f"checkpoints/{task_id}")


def container_of(task_id: int) -> SharedDirectory:
    """Return the working directory of a dev container, which all its runs use."""
    return SharedDirectory(f"containers/{task_id}")


def parse_volume(text: str) -> tuple[MountKind, str]:
    """Parse the volume of `shared`, written as kind:source. Raises Problem."""
    kind_text, _, source = text.partition(":")
    for kind in _KINDS:
        if kind.value == kind_text:
            return kind, check_source(kind, source)
    kinds = ", ".join(f"{kind.value}:…" for kind in _KINDS)
    raise Problem(1, f"{text[:40]!r} must be one of {kinds}")

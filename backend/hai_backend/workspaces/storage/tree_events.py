"""Changes below a tree that somebody follows: the kernel tells of them, or everything is suspected every few seconds.

The kernel tells of what programs of this machine do. Storage that other machines write to as well must be looked at.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path

import structlog

from hai.host.inotify import Inotify
from hai_backend.domain.workspace import OWN
from hai_backend.workspaces.registry import WorkspaceRegistry

POLL_SECONDS = 5.0
_BURST_SECONDS = 0.05  # what comes so soon after one another is one change
_READS = 64  # of many events each; more than the kernel keeps
_LIMITS = "fs.inotify.max_user_watches and fs.inotify.max_user_instances"
_NETWORK = frozenset({"9p", "afs", "cifs", "fuse", "nfs", "nfs4", "smb3", "smbfs", "virtiofs"})
_CLUSTER = frozenset({"beegfs", "ceph", "gfs2", "glusterfs", "gpfs", "lustre", "ocfs2", "wekafs"})

log = structlog.get_logger(__name__)


async def changes(rooms: WorkspaceRegistry, tree: Path) -> AsyncGenerator[set[str] | None]:
    """Paths that have changed since the last ones were asked for; None, and first of all: anything may have."""
    try:
        while await rooms.in_thread(partial(_are_told, tree)):
            async with aclosing(_told(rooms, tree)) as told:
                async for paths in told:
                    yield paths
    except OSError as error:
        why = f"{error.strerror}; an operator may raise {_LIMITS}"
        log.warning("changes of a workspace are looked for", tree=str(tree), why=why)
    while True:
        yield None
        await asyncio.sleep(POLL_SECONDS)


def _are_told(tree: Path) -> bool:
    """Other machines may write to what lies on a network or a cluster file system."""
    kind = file_system(tree).partition(".")[0]
    return sys.platform == "linux" and kind not in _NETWORK | _CLUSTER


def file_system(path: Path) -> str:
    """What Linux calls the kind of file system that a path lies on, as `fuse.sshfs`; empty: unknown."""
    try:
        device = os.stat(path).st_dev
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for fields in map(str.split, lines):
        if fields[2] == number:
            return fields[fields.index("-") + 1]
    return ""


async def _told(rooms: WorkspaceRegistry, tree: Path) -> AsyncGenerator[set[str] | None]:
    """Ends when events were lost, or another directory lies there. Raises OSError where the kernel watches no more."""
    with closing(Inotify(str(tree), OWN.__eq__)) as watching:
        await rooms.in_thread(partial(watching.add, ""))
        yield None
        while True:
            await _readable(watching.file)
            await asyncio.sleep(_BURST_SECONDS)
            paths = await rooms.in_thread(partial(_read, watching))
            if paths is None:
                return
            if paths:
                yield paths


async def _readable(file: int) -> None:
    """Return when there is something to read."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)


def _read(watching: Inotify) -> set[str] | None:
    """All that has been told; None: more than that. Raises OSError."""
    found = set[str]()
    for _ in range(_READS):
        paths = watching.read()
        if paths is None:
            return None
        if not paths:
            break
        found |= paths
    return found

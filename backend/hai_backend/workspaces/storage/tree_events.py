"""Reports changes below a tree that clients follow, from kernel events or by a request for a scan every few seconds.

The kernel reports only changes by programs of this machine, so storage to which other machines write must be scanned.
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
_BURST_SECONDS = 0.05  # events within this time are one change
_MAX_READS = 64  # together more events than the kernel queues
_KERNEL_LIMITS = "fs.inotify.max_user_watches and fs.inotify.max_user_instances"
_NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "cifs", "fuse", "nfs", "nfs4", "smb3", "smbfs", "virtiofs"}
)
_CLUSTER_FILE_SYSTEMS = frozenset(
    {"beegfs", "ceph", "gfs2", "glusterfs", "gpfs", "lustre", "ocfs2", "wekafs"}
)

log = structlog.get_logger(__name__)


async def watch_changes(registry: WorkspaceRegistry, tree: Path) -> AsyncGenerator[set[str] | None]:
    """Yield the paths that have changed since the last ones. Yield None, also at first, if all may have changed."""
    try:
        while await registry.run_in_thread(partial(_kernel_reports_all, tree)):
            async with aclosing(_kernel_events(registry, tree)) as events:
                async for paths in events:
                    yield paths
    except OSError as error:
        reason = f"{error.strerror}; an operator may raise {_KERNEL_LIMITS}"
        log.warning(
            "a workspace is scanned for changes instead of being watched",
            tree=str(tree),
            reason=reason,
        )
    while True:
        yield None
        await asyncio.sleep(POLL_SECONDS)


def _kernel_reports_all(tree: Path) -> bool:
    """Return whether only this machine can write to a tree, which is not so on network and cluster file systems."""
    kind = file_system(tree).partition(".")[0]
    return sys.platform == "linux" and kind not in _NETWORK_FILE_SYSTEMS | _CLUSTER_FILE_SYSTEMS


def file_system(path: Path) -> str:
    """Return Linux's name of the file system of a path, as in `fuse.sshfs`; empty if unknown."""
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


async def _kernel_events(
    registry: WorkspaceRegistry, tree: Path
) -> AsyncGenerator[set[str] | None]:
    """Yield changed paths until events are lost or the directory is replaced. Raise OSError at limits of the kernel."""
    with closing(Inotify(str(tree), OWN.__eq__)) as inotify:
        await registry.run_in_thread(partial(inotify.add, ""))
        yield None
        while True:
            await _wait_readable(inotify.file)
            await asyncio.sleep(_BURST_SECONDS)
            paths = await registry.run_in_thread(partial(_read_events, inotify))
            if paths is None:
                return
            if paths:
                yield paths


async def _wait_readable(file: int) -> None:
    """Wait until a file can be read without waiting."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)


def _read_events(inotify: Inotify) -> set[str] | None:
    """Return all reported paths; None if events were lost. Raise OSError."""
    changed = set[str]()
    for _ in range(_MAX_READS):
        paths = inotify.read()
        if paths is None:
            return None
        if not paths:
            break
        changed |= paths
    return changed

"""Which directory a memory belongs to: a copy (`cp -r`) has the identity of a workspace, but not its past.

A root is known by its device and inode, which a move keeps. Devices are numbered anew by some mounts, so one of the
same inode at the same path is the same, too.
"""

from __future__ import annotations

import os


def mark(root: str) -> str:
    """What a memory notes of its root. Raises OSError."""
    status = os.stat(root)
    return f"{status.st_dev} {status.st_ino} {os.fsencode(root).hex()}"


def path_of(noted: str) -> str:
    """Where a root was when its mark was made."""
    return os.fsdecode(bytes.fromhex(noted.split()[2]))


def is_same(before: str, now: str) -> bool:
    """Whether two marks are of one directory."""
    old_device, old_inode, old_path = before.split()
    device, inode, path = now.split()
    return inode == old_inode and (device == old_device or path == old_path)

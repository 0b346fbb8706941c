"""A small file system, for tests of full disks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CANNOT = "" if sys.platform == "linux" and os.geteuid() == 0 else "only root can mount a small disk"


@contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[Path]:
    """Mounted there. Skips the test where nobody may."""
    if CANNOT:
        pytest.skip(CANNOT)
    at.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode=755"
    command = ["mount", "-t", "tmpfs", "-o", options, "small-disk", str(at)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def fill(disk: Path, *, but: int = 0) -> Path:
    """Write a file that leaves only `but` bytes free, and return its path. Removing the file frees the space."""
    room = os.statvfs(disk)
    path = disk / "filling"
    with path.open("ab") as file:
        for size in (1 << 20, 1 << 12):
            while room.f_bavail * room.f_frsize - but >= size:
                try:
                    os.write(file.fileno(), b"\0" * size)
                except OSError:
                    break
                room = os.statvfs(disk)
    return path

"""Sockets whose path is too long for the kernel: a link there leads to a short one, which goes when the rank does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LONGEST = 100  # the kernel takes 107 bytes


def short(path: Path) -> Path:
    """Where a socket of this path can be: there, or in a directory of its own that a link at the path leads to."""
    if len(os.fsencode(path)) <= _LONGEST:
        return path
    import tempfile  # rarely needed, and every agent pays for what stands on top

    remove(path)
    address = Path(tempfile.mkdtemp(prefix="hai-", dir="/tmp")) / "s"
    path.symlink_to(address)
    return address


def remove(path: Path) -> None:
    """The link at a path, and what lies where it leads; a socket that is there itself stays."""
    if path.is_symlink():
        address = path.readlink()
        with suppress(OSError):
            address.unlink(missing_ok=True)
            address.parent.rmdir()
        path.unlink()


def remove_directory(link: Path) -> None:
    """Removes what a program linked to for its own sockets (hai_jupyter.kernels.kernel_dir): only sockets and the
    like."""
    if not link.is_symlink():
        return
    address = link.readlink()
    if address.parent != Path("/tmp") or not address.name.startswith("hai-"):
        return
    with suppress(OSError):
        for file in address.iterdir():
            if file.is_socket() or file.suffix == ".json":
                file.unlink()
        address.rmdir()

"""Unix sockets whose path is too long for the kernel: the path becomes a link to a short one in /tmp."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LONGEST = 100  # the kernel takes 107 bytes


def short(path: Path) -> Path:
    """The path to listen on: `path`, or a short one that a link at `path` leads to."""
    if len(os.fsencode(path)) <= _LONGEST:
        return path
    import tempfile  # rarely needed, and imported by every agent if it stood on top

    remove(path)
    address = Path(tempfile.mkdtemp(prefix="hai-", dir="/tmp")) / "s"
    path.symlink_to(address)
    return address


def remove(path: Path) -> None:
    """Remove a link that `short` made, with its target; a socket at the path itself stays."""
    if path.is_symlink():
        address = path.readlink()
        with suppress(OSError):
            address.unlink(missing_ok=True)
            address.parent.rmdir()
        path.unlink()


def remove_directory(link: Path) -> None:
    """Remove the directory that a program linked to for its sockets (hai_jupyter.kernels.kernel_dir).

    Removes only sockets and connection files.
    """
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

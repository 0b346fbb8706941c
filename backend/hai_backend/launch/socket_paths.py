"""Short paths for unix sockets. A path that is too long for the kernel becomes a link to a path in /tmp."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MAX_BYTES = 100  # the kernel accepts 107


def shorten(path: Path) -> Path:
    """Return the path to listen on: `path` itself, or a short path in /tmp to which `path` becomes a link."""
    if len(os.fsencode(path)) <= _MAX_BYTES:
        return path
    import tempfile  # here, because agents start faster without it and rarely need it

    remove_link(path)
    address = Path(tempfile.mkdtemp(prefix="hai-", dir="/tmp")) / "s"
    path.symlink_to(address)
    return address


def remove_link(path: Path) -> None:
    """Remove a link that `shorten` has created, with its target. A socket at `path` itself is kept."""
    if path.is_symlink():
        address = path.readlink()
        with suppress(OSError):
            address.unlink(missing_ok=True)
            address.parent.rmdir()
        path.unlink()


def remove_linked_directory(link: Path) -> None:
    """Remove the directory in /tmp that hai_jupyter.kernels.kernel_dir has created for sockets.

    Only sockets and connection files are deleted. If other files remain, the directory is kept.
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

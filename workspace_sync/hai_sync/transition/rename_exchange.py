"""Two names change places in one step of the file system, so that nothing can come in between and be lost."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def exchange(path: str, folder: int, name: str) -> bool:
    """An absolute path, and a name in an open directory. False: this file system cannot. Raises OSError."""
    rename = _rename()
    if rename is None:
        return False
    sys.audit("os.rename", path, name, folder, folder)
    old, new = os.fsencode(path), os.fsencode(name)
    if rename(folder, old, folder, new, _EXCHANGE) == 0:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), name)


@cache
def _rename() -> Callable[..., Any] | None:
    import ctypes  # here, since most syncs overwrite nothing

    libc = ctypes.CDLL(None, use_errno=True)
    return getattr(libc, "renameat2", None) or getattr(libc, "renameatx_np", None)

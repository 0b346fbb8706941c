"""How a process that moves megabytes keeps memory for the next message."""

from __future__ import annotations

import ctypes

_TRIM, _MMAP, _ARENAS = -1, -3, -8  # names of mallopt(3)
_RETAINED_BYTES = 32 << 20


def retain_freed_memory(arenas: int = 0) -> None:
    """Megabytes that were freed are not given back at once, for the next message needs as many.

    The kernel empties each page anew: of what a push of 1 GiB costs a server that was a fifth, of what one of 20 000
    files costs a client a tenth. `arenas`: among how many pools threads share memory; 0: as malloc likes, some for
    each processor. Where malloc is not glibc's, nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP, _RETAINED_BYTES)
    mallopt(_TRIM, _RETAINED_BYTES)
    if arenas:
        mallopt(_ARENAS, arenas)

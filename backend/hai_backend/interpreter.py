"""How CPython is set for a server: many long-lived objects, one busy event loop, one thread that writes the store."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_FILES = 16_384
_SWITCH_SECONDS = 0.0005
_THRESHOLDS = (50_000, 20, 100)
_TRIM, _MMAP = -1, -3  # names of mallopt(3)
_KEPT_BYTES = 32 << 20


def share_quickly() -> None:
    """The writer asks for the interpreter lock at every step of a statement; beside a busy loop each takes that long.

    With Python's own 5 ms a commit of some twenty steps takes 0.1 s and more, and every suspend waits for one.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)


def keep_memory() -> None:
    """Megabytes that were freed are not given back at once, for the next message needs as many.

    The kernel empties each page anew: of what a push of 1 GiB costs a server that was a fifth. Where malloc is not
    glibc's, nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP, _KEPT_BYTES)
        mallopt(_TRIM, _KEPT_BYTES)


def open_many() -> None:
    """Threads that work on slow storage keep hundreds of directories open; most systems begin with 1024 files.

    Not as many as the system allows: programs inherit it, and some look at each number that a file could have.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # what is told may not be what is allowed
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, _FILES)), most))


def collect_rarely() -> None:
    """Call when the start is over: what was made by then stays, and tasks are no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def built_to_stay() -> Iterator[None]:
    """While something large is built that stays: the collector would look at all of it time and again, in vain.

    A fifth of the scheduler's first pass over 100 000 tasks was that. Afterwards it never looks at it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

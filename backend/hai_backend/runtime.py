"""Settings of the Python interpreter for a server: many long-lived objects, a busy event loop, a writer thread."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MAX_FILES = 16_384
_SWITCH_SECONDS = 0.0005
_GC_THRESHOLDS = (50_000, 20, 100)


def shorten_switch_interval() -> None:
    """Let threads wait less for the interpreter lock.

    The writer thread of SQLite waits for the lock at every step of a statement. With Python's default of 5 ms and a
    busy event loop, a commit of about twenty steps takes more than 0.1 s, and every suspend waits for a commit.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)


def raise_file_limit() -> None:
    """Raise the limit of open files, because threads that work on slow storage keep hundreds of directories open.

    The new limit is not the largest possible one. Programs inherit it, and some try to close every possible file.
    """
    limit, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the system may refuse the limit that it reports
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, min(maximum, _MAX_FILES)), maximum))


def reduce_garbage_collection() -> None:
    """Collect garbage less often, and never examine the objects that exist now. Call this after the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Build long-lived objects without garbage collection. The collector never examines them afterwards.

    The collector would examine them many times and find nothing. In the first scheduling pass over 100 000 tasks, this
    took a fifth of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

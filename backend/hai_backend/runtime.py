"""How CPython is set for a server: many long-lived objects, one busy event loop, one thread that writes the store."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_FILES = 16_384
_SWITCH_SECONDS = 0.0005
_THRESHOLDS = (50_000, 20, 100)


def share_quickly() -> None:
    """The writer asks for the interpreter lock at every step of a statement; beside a busy loop each takes that long.

    With Python's own 5 ms a commit of some twenty steps takes 0.1 s and more, and every suspend waits for one.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)


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

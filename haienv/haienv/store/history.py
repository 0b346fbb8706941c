"""Records changes to a user's environments: one JSON line per change, in a file that only the user can read.

The line is written after the change is committed. So a process that is killed in between leaves no line, never a wrong
one.
"""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass

from haienv.store.layout import Home
from haienv.store.records import utc_now
from haienv.store.untrusted_io import LOCK_LIMIT_BYTES, Unreadable, read_text

_FILE = ".history"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the history. `layer` is the layer after the change; empty if the environment was removed."""

    time: str
    what: str
    name: str
    layer: str
    uid: int
    host: str


def record_change(home: Home, what: str, name: str, layer: str = "") -> None:
    """Append a line. The caller holds the lease. Errors are ignored, because the change is already committed."""
    change = Change(utc_now().isoformat(), what, name, layer, os.getuid(), platform.node())
    line = json.dumps(asdict(change))
    path = home.user_dir / _FILE
    with suppress(OSError):
        if path.exists() and path.stat().st_size > _MAX_BYTES:
            path.replace(home.user_dir / f"{_FILE}.1")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def read_changes(home: Home, owner: str) -> list[Change]:
    """Return the changes of one user, oldest first. Invalid lines are skipped."""
    changes: list[Change] = []
    for name in (f"{_FILE}.1", _FILE):
        with suppress(Unreadable):
            for line in read_text(home.root / owner / name, LOCK_LIMIT_BYTES).splitlines():
                with suppress(ValueError, TypeError, RecursionError):
                    changes.append(_parse_line(line))
    return changes


def _parse_line(line: str) -> Change:
    """Parse an untrusted line. Raise ValueError, TypeError or RecursionError."""
    change = Change(**json.loads(line))
    texts = (change.time, change.what, change.name, change.layer, change.host)
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("not printable")
    return change

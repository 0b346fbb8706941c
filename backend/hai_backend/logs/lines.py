"""The format of a log line, written by agents and read by the server.

``2026-11-21T11:08:20.123456Z text\\n``
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

STAMP_BYTES = 28  # including the blank after it
MAX_LINE_BYTES = 64 * 1024  # stamp, text and newline
MAX_TEXT_BYTES = MAX_LINE_BYTES - STAMP_BYTES - 2


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as a reader sees it. `redraw`: a progress bar as it is now, which the next line of its rank replaces."""

    run: int
    rank: int
    time: float
    text: str
    redraw: bool = False


def stamp(now: float) -> bytes:
    """The beginning of a line that was read at `now`."""
    time_utc = datetime.fromtimestamp(now, UTC)
    return time_utc.isoformat(timespec="microseconds")[:26].encode() + b"Z "


def time_of(raw: bytes) -> float | None:
    """The time stamp of a stored line; None if it has none (not written by an agent, or its beginning is missing)."""
    if raw[26:STAMP_BYTES] != b"Z ":
        return None
    try:
        return datetime.fromisoformat(raw[:26].decode("ascii") + "+00:00").timestamp()
    except ValueError:
        return None


def decode(raw: bytes, run: int, rank: int, default_time: float) -> LogLine:
    """A stored line, without its newline, as a value; `otherwise` is the time of a line that has no stamp."""
    time = time_of(raw)
    text = raw if time is None else raw[STAMP_BYTES:]
    return LogLine(
        run,
        rank,
        default_time if time is None else time,
        text.decode("utf-8", "replace"),
    )

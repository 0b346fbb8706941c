"""The format of a log line, written by agents and read by the server.

``2026-11-21T11:08:20.123456Z text\\n``
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

STAMP_BYTES = 28  # including the space after it
MAX_LINE_BYTES = 64 * 1024  # of the time stamp, the text and the newline
MAX_TEXT_BYTES = MAX_LINE_BYTES - STAMP_BYTES - 2


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as readers get it. If `redraw`, it is a progress bar, which the next line of its rank replaces."""

    run: int
    rank: int
    time: float
    text: str
    redraw: bool = False


def stamp(now: float) -> bytes:
    """Return the time stamp with which a line begins. `now` is when the agent has read the line."""
    time_utc = datetime.fromtimestamp(now, UTC)
    return time_utc.isoformat(timespec="microseconds")[:26].encode() + b"Z "


def time_of(raw: bytes) -> float | None:
    """Return the time stamp of a stored line, in seconds since the Unix epoch, or None if it has none.

    A line has no time stamp if it was not written by an agent, or if its beginning is missing.
    """
    if raw[26:STAMP_BYTES] != b"Z ":
        return None
    try:
        return datetime.fromisoformat(raw[:26].decode("ascii") + "+00:00").timestamp()
    except ValueError:
        return None


def decode(raw: bytes, run: int, rank: int, default_time: float) -> LogLine:
    """Convert a stored line without its newline. `default_time` is the time of a line without a time stamp."""
    time = time_of(raw)
    text = raw if time is None else raw[STAMP_BYTES:]
    return LogLine(
        run,
        rank,
        default_time if time is None else time,
        text.decode("utf-8", "replace"),
    )

"""When a waiting task may start, as people read it: short in a table, as a sentence where one task is told of."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING

from hai_tui.i18n import text

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from hai.v1.task_pb2 import PredictedStart

_SOON = 120.0  # seconds
_MINUTE, _DAY = 60, 86_400


def short(start: PredictedStart, now: float) -> str:
    """`~02:10-05:40`, with dates unless both are within a day; `soon`; `-` when there is no prediction."""
    if not start.HasField("p10"):
        return "-"
    if not start.HasField("p90"):
        return f"~{_clock(_floor(start.p10), now)}-?"
    if _seconds(start.p90) - now <= _SOON:
        return "soon"
    first, last = _clock(_floor(start.p10), now), _clock(_ceil(start.p90), now)
    return f"~{first}" if first == last else f"~{first}-{last}"


def sentences(start: PredictedStart, now: float) -> list[str]:
    """The interval, the even odds and the basis; or why there is none."""
    if not start.HasField("p10"):
        return [text("start.none", reason=start.reason)] if start.reason else []
    if not start.HasField("p50"):
        return [text("start.open", first=_clock(_floor(start.p10), now), basis=start.basis)]
    middle = _clock(round(_seconds(start.p50)), now)
    return [text("start.when", interval=short(start, now), middle=middle, basis=start.basis)]


def _seconds(stamp: Timestamp) -> float:
    return stamp.seconds + stamp.nanos / 1e9


def _floor(stamp: Timestamp) -> int:
    """Intervals grow to whole minutes: nothing finer is known."""
    return stamp.seconds // _MINUTE * _MINUTE


def _ceil(stamp: Timestamp) -> int:
    return ceil(_seconds(stamp) / _MINUTE) * _MINUTE


def _clock(timestamp: int, now: float) -> str:
    local = datetime.fromtimestamp(timestamp, tz=UTC).astimezone()
    return local.strftime("%H:%M" if timestamp - now < _DAY else "%m-%d %H:%M")

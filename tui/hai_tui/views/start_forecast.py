"""The predicted start of a waiting task: a short text for tables, sentences for the page of one task."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING

from hai_tui.i18n import text

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from hai.v1.task_pb2 import PredictedStart

_SOON_SECONDS = 120.0
_MINUTE, _DAY = 60, 86_400


def start_text(start: PredictedStart, now: float) -> str:
    """Return the interval as `~02:10-05:40`, with dates unless both are today; `soon`; `-` without a prediction."""
    if not start.HasField("p10"):
        return "-"
    if not start.HasField("p90"):
        return f"~{_clock(_floor(start.p10), now)}-?"
    if _seconds(start.p90) - now <= _SOON_SECONDS:
        return "soon"
    first, last = _clock(_floor(start.p10), now), _clock(_ceil(start.p90), now)
    return f"~{first}" if first == last else f"~{first}-{last}"


def start_sentences(start: PredictedStart, now: float) -> list[str]:
    """Return a sentence with the interval, the median and the basis; or the reason why there is no prediction."""
    if not start.HasField("p10"):
        return [text("start.none", reason=start.reason)] if start.reason else []
    if not start.HasField("p50"):
        return [text("start.open", first=_clock(_floor(start.p10), now), basis=start.basis)]
    interval, middle = start_text(start, now), _clock(round(_seconds(start.p50)), now)
    return [text("start.when", interval=interval, middle=middle, basis=start.basis)]


def _seconds(stamp: Timestamp) -> float:
    return stamp.seconds + stamp.nanos / 1e9


# Intervals are widened to whole minutes, because predictions are not more precise.


def _floor(stamp: Timestamp) -> int:
    return stamp.seconds // _MINUTE * _MINUTE


def _ceil(stamp: Timestamp) -> int:
    return ceil(_seconds(stamp) / _MINUTE) * _MINUTE


def _clock(timestamp: int, now: float) -> str:
    local = datetime.fromtimestamp(timestamp, tz=UTC).astimezone()
    return local.strftime("%H:%M" if timestamp - now < _DAY else "%m-%d %H:%M")

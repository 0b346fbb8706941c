"""Series of usage as table rows: a sparkline, the mean and the maximum of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hai.client.text.formatting import size_text
from hai_tui.formatting.charts import mean, most, spark
from hai_tui.formatting.table import Column, View
from hai_tui.formatting.values import span
from hai_tui.i18n import text

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from hai.v1.usage_service_pb2 import ListClusterUsageResponse, ListTaskUsageResponse

RANKS = View(
    key="ranks",
    name=lambda series: f"{series.rank}",
    empty="none.usage",
    columns=(
        Column("rank", lambda s, now: str(s.rank) if s.run else "all", right=True),
        Column("run", lambda s, now: str(s.run or "-"), right=True),
        Column("what", lambda s, now: s.key),
        Column("mean", lambda s, now: format_number(mean(s.values), s.unit), right=True),
        Column("max", lambda s, now: format_number(most(s.peaks), s.unit), right=True),
        Column("series", lambda s, now: spark(s.values, s.top)),
    ),
)

CLUSTER = View(
    key="points",
    name=lambda series: str(series.key),
    empty="none.usage",
    columns=(
        Column("what", lambda s, now: text(f"usage.{s.key}")),
        Column("mean", lambda s, now: format_number(mean(s.values), s.unit), right=True),
        Column("max", lambda s, now: format_number(most(s.values), s.unit), right=True),
        Column(
            "of",
            lambda s, now: format_number(mean(s.total), s.unit) if s.total else "-",
            right=True,
        ),
        Column("series", lambda s, now: spark(s.values, s.top)),
    ),
)


def format_number(value: float | None, unit: str) -> str:
    """Return a value with its unit, such as 3.2, 1.5 GiB or 87%."""
    if value is None:
        return "-"
    if unit == "bytes":
        return size_text(round(value))
    if unit == "share":
        return f"{value:.0%}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def usage_heading(answer: ListTaskUsageResponse | ListClusterUsageResponse) -> str:
    """Return the time span of the series and the time that each block stands for."""
    start, end = _local_time(answer.start_time), _local_time(answer.end_time)
    return text("usage.heading", start=start, end=end, step=span(answer.step_seconds))


def _local_time(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.seconds, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")

"""How series of use are shown: a line of blocks, a mean and a maximum each."""

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
        Column("mean", lambda s, now: number(mean(s.values), s.unit), right=True),
        Column("max", lambda s, now: number(most(s.peaks), s.unit), right=True),
        Column("series", lambda s, now: spark(s.values, s.top)),
    ),
)

CLUSTER = View(
    key="points",
    name=lambda series: str(series.key),
    empty="none.usage",
    columns=(
        Column("what", lambda s, now: text(f"usage.{s.key}")),
        Column("mean", lambda s, now: number(mean(s.values), s.unit), right=True),
        Column("max", lambda s, now: number(most(s.values), s.unit), right=True),
        Column("of", lambda s, now: number(mean(s.total), s.unit) if s.total else "-", right=True),
        Column("series", lambda s, now: spark(s.values, s.top)),
    ),
)


def number(value: float | None, unit: str) -> str:
    """3.2, 1.5 GiB or 87%."""
    if value is None:
        return "-"
    if unit == "bytes":
        return size_text(round(value))
    return f"{value:.0%}" if unit == "share" else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def heading(answer: ListTaskUsageResponse | ListClusterUsageResponse) -> str:
    """From when to when, and how long a block is."""
    start, end = _local(answer.start_time), _local(answer.end_time)
    return text("usage.heading", start=start, end=end, step=span(answer.step_seconds))


def _local(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.seconds, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")

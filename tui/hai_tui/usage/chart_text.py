"""Draws series of usage as charts of dots, each with a heading. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from hai_tui.formatting.charts import Series, area, mean, most
from hai_tui.i18n import text
from hai_tui.usage.series import RankSeries, cluster_series, rank_series
from hai_tui.views.usage import format_number, usage_heading

if TYPE_CHECKING:
    from hai.v1.usage_service_pb2 import ListClusterUsageResponse, ListTaskUsageResponse

Tones = Mapping[str, Style]
_HEIGHT = 3
_TONES = {"cpus": "busy", "memory": "waits", "gpu": "good", "gpu-memory": "held"}
_CLUSTER_TONES = {"nodes": "busy", "gpus": "held", "gpu": "good", "waiting": "waits"}


def of_task(answers: Sequence[ListTaskUsageResponse], width: int, tones: Tones) -> Text:
    """Return charts of all quantities: for all ranks together if the server sent their sum, then for each rank."""
    page, content = Text(), ""
    for answer in answers:
        series = rank_series(answer)
        if series and usage_heading(answer) != content:
            content = usage_heading(answer)
            page.append(f"{content}\n", "dim")
        page.append_text(_rank_charts(series, width, tones))
    return page if page else Text(text("none.usage"), "dim")


def _rank_charts(series: Sequence[RankSeries], width: int, tones: Tones) -> Text:
    page, current = Text(), (-1, -1)
    for one in series:
        if (one.rank, one.run) != current:
            current = (one.rank, one.run)
            key = "usage.rank" if one.run else "usage.together"
            page.append("\n").append(text(key, rank=one.rank, run=one.run) + "\n", "bold")
        facts = (mean(one.values), most(one.peaks), _last(one.values))
        page.append(_numbers(f"usage.rank.{one.key}", facts, one.unit) + "\n")
        page.append_text(_chart(one.values, one.top, width, tones[_TONES[one.key]]))
    return page


def of_cluster(answer: ListClusterUsageResponse, width: int, tones: Tones) -> Text:
    """Return charts of nodes, GPUs and the queue."""
    if not answer.points:
        return Text(text("none.usage"), "dim")
    page = Text(usage_heading(answer) + "\n", "dim")
    for one in cluster_series(answer):
        facts = (mean(one.values), most(one.values), _last(one.values))
        content = _numbers(f"usage.{'gpu.of' if one.key == 'gpu' else one.key}", facts, one.unit)
        total = (
            text("usage.of", count=format_number(_last(one.total), one.unit)) if one.total else ""
        )
        page.append("\n").append(f"{content}{total}\n", "bold")
        page.append_text(_chart(one.values, one.top, width, tones[_CLUSTER_TONES[one.key]]))
    return page


def _numbers(key: str, facts: Sequence[float | None], unit: str) -> str:
    average, highest, last = (format_number(value, unit) for value in facts)
    return text("usage.numbers", what=text(key), mean=average, most=highest, last=last)


def _chart(values: Series, top: float, width: int, style: Style) -> Text:
    chart = Text()
    for line in area(_stretch(values, 2 * width), width, _HEIGHT, top):
        chart.append(line + "\n", style)
    return chart


def _stretch(values: Series, columns: int) -> list[float]:
    """Return a value for each column, so that a short series fills the width."""
    count = max(columns, len(values)) if values else 0
    return [values[i * len(values) // count] or 0.0 for i in range(count)]


def _last(values: Series) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)

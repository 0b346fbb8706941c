"""The page of the usage of the cluster over time: nodes, GPUs and the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.widget import Widget

from hai_tui.actions import Action
from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.style.theme import tones
from hai_tui.widgets.usage_view import UsageView

if TYPE_CHECKING:
    from hai.v1.usage_service_pb2 import ListClusterUsageResponse

SPANS = {"1h": 3600, "3h": 3 * 3600, "1d": 86400, "3d": 3 * 86400, "30d": 30 * 86400}
"""The time spans that the keys switch between, in seconds."""


class UsagePage(Page):
    """The page is opened by `:usage` or `:usage GROUP`."""

    def __init__(self, group: str = "", *_: str) -> None:
        super().__init__()
        self._group, self._span = group, "3h"

    def content(self) -> Widget:
        return UsageView(self._load, self._draw, self.hai.fail)

    def actions(self) -> Sequence[Action]:
        return (
            Action("+", "longer", "usage.longer", lambda: self._change_span(1)),
            Action("-", "shorter", "usage.shorter", lambda: self._change_span(-1)),
            Action("ctrl+r", "reload", "do.reload", self._reload),
            Action("n", "map", "page.cluster", lambda: self.hai.goto("cluster")),
        )

    def _change_span(self, step: int) -> None:
        names = list(SPANS)
        index = names.index(self._span) + step
        self._span = names[max(0, min(len(names) - 1, index))]
        self._update_status()
        self._reload()

    def _reload(self) -> None:
        self.query_one(UsageView).reload()

    def _update_status(self) -> None:
        spans = " ".join(f"[{name}]" if name == self._span else name for name in SPANS)
        self.status(f"{self._group or text('usage.all')} · {spans}")

    async def _load(self, points: int) -> ListClusterUsageResponse:
        client = await self.hai.session.client()
        start = datetime.fromtimestamp(self.hai.now() - SPANS[self._span], tz=UTC)
        usage, group = client.usage, self._group
        return await self.hai.session.call_with_retry(
            lambda: usage.of_cluster(group, start=start, points=points)
        )

    def _draw(self, answer: Any, width: int) -> Text:
        from hai_tui.usage import chart_text

        self._update_status()
        return chart_text.of_cluster(answer, width, tones(self.hai.current_theme))

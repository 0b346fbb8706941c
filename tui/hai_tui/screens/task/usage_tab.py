"""The tab with the usage of a task's ranks: all ranks together, then each of a page of ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.text import Text

from hai_tui.i18n import text
from hai_tui.style.theme import tones
from hai_tui.widgets.usage_view import UsageView

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai.v1.usage_service_pb2 import ListTaskUsageResponse
    from hai_tui.base_app import BaseApp

_PAGE_RANKS = 8


class UsageTab(UsageView):
    """The tab. `task` returns the task, or None while it is not loaded."""

    def __init__(self, hai: BaseApp, task: Callable[[], Task | None], id: str) -> None:
        super().__init__(self._load_usage, self._draw_page, hai.fail, id)
        self._hai, self._current_task, self._first = hai, task, 0

    @property
    def ranks(self) -> range:
        """Return the ranks of the current page."""
        return range(self._first, min(self._first + _PAGE_RANKS, self._count))

    def turn_page(self, step: int) -> None:
        """Show the next or the previous ranks."""
        last = (self._count - 1) // _PAGE_RANKS * _PAGE_RANKS
        self._first = max(0, min(self._first + step * _PAGE_RANKS, last))
        self.scroll_home(animate=False)
        self.reload()

    def why_no_other_page(self) -> str:
        """Return why there is no other page; empty if there is one."""
        return "" if self._count > _PAGE_RANKS else text("usage.all.shown")

    @property
    def _count(self) -> int:
        task = self._current_task()
        return task.node_count if task else 0

    async def _load_usage(self, points: int) -> list[ListTaskUsageResponse] | None:
        client, task, ranks = await self._hai.session.client(), self._current_task(), self.ranks
        if task is None:
            return None
        requests = [client.usage.of_task(task.id, ranks=ranks, points=points)]
        if self._count > 1:
            requests.insert(0, client.usage.of_task(task.id, points=points, sum=True))
        return list(await asyncio.gather(*requests))

    def _draw_page(self, answers: Any, width: int) -> Text:
        from hai_tui.usage import chart_text

        styles, ranks = tones(self._hai.current_theme), self.ranks
        page = chart_text.of_task(answers, width, styles)
        if self._count > _PAGE_RANKS:
            facts = {"first": ranks.start, "last": ranks.stop - 1, "count": self._count}
            page = Text(text("usage.some", **facts) + "\n", "dim").append_text(page)
        return page

"""The tab of a task that shows what its ranks use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.text import Text

from hai_tui.theme import tones
from hai_tui.widgets.usage_view import UsageView

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai.v1.usage_service_pb2 import ListTaskUsageResponse
    from hai_tui.app import HaiApp

_MOST_RANKS = 8
"""The first ones; `hai usage` shows others."""


def usage_tab(hai: HaiApp, task: Callable[[], Task | None], id: str) -> UsageView:
    """`task` says which, once that is known."""

    def ranks(of: Task) -> range:
        return range(min(_MOST_RANKS, of.node_count)) if of.node_count > _MOST_RANKS else range(0)

    async def ask(points: int) -> ListTaskUsageResponse | None:
        client, of = await hai.session.client(), task()
        if of is None:
            return None
        usage = client.usage
        return await hai.session.insist(
            lambda: usage.of_task(of.id, ranks=ranks(of), points=points)
        )

    def draw(answer: Any, width: int) -> Text:
        from hai_tui import usage_text

        of = task()
        left_out = max(0, of.node_count - _MOST_RANKS) if of else 0
        return usage_text.of_task(answer, width, tones(hai.current_theme), left_out)

    return UsageView(ask, draw, hai.fail, id)

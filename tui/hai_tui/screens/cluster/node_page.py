"""The page of one node: its facts, the tasks on it, and the queue of its group."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import Vertical
from textual.widget import Widget

from hai.client.tasks.silent_agents import silent_agents_on_node
from hai_tui.actions import Action
from hai_tui.cluster.text import node_card
from hai_tui.cluster.usage import numbers
from hai_tui.feed.debouncer import Debouncer
from hai_tui.formatting.cells import Cell, Column
from hai_tui.formatting.values import priority_name, since
from hai_tui.i18n import text
from hai_tui.runtime.textual_compat import later, run_in_background
from hai_tui.screens.cluster.node_actions import NodeActionsPage
from hai_tui.style.theme import tones
from hai_tui.views.gpus import sentence
from hai_tui.views.start_forecast import start_text
from hai_tui.widgets.plain import Static
from hai_tui.widgets.table.virtual_table import VirtualTable

if TYPE_CHECKING:
    from hai.client.errors import HaiError
    from hai.v1.node_pb2 import Gpu, Node
    from hai.v1.node_service_pb2 import WatchNodesResponse
    from hai.v1.task_pb2 import Task
    from hai.v1.usage_service_pb2 import ListNodeUsageResponse


_USAGE_SECONDS = 20.0
_TICK_SECONDS = 1.0
_QUEUE_SECONDS = 1.0
"""The least time between two requests for the queue, which changes all the time on a busy cluster."""


class NodePage(NodeActionsPage):
    """The page is opened with the name of a node."""

    DEFAULT_CSS = """
    NodePage #card { height: auto; padding: 0 1; margin-bottom: 1; }
    NodePage #waits { height: 1; padding: 0 1; text-style: bold; color: $secondary; }
    """

    def __init__(self, name: str = "", *_: str) -> None:
        super().__init__()
        self._node_name = name
        self._node: Node | None = None
        self._version = 0
        self._rows: dict[int, Task] = {}
        self._usage_text = ""
        self._gpus: Sequence[Gpu] = ()
        self._reload_queue = Debouncer(
            lambda ids: self._load_queue(), _QUEUE_SECONDS, partial(later, self)
        )

    @property
    def node(self) -> Node | None:
        return self._node

    @property
    def table(self) -> VirtualTable:
        return self.query_one(VirtualTable)

    def content(self) -> Widget:
        table = VirtualTable(_columns(), self._rows.get, self.hai.now, empty=text("none.queue"))
        return Vertical(Static(id="card"), Static(text("node.queue"), id="waits"), table)

    def actions(self) -> Sequence[Action]:
        return (
            Action("enter", "open", "action.open", self._open_task),
            Action("l", "logs", "node.do.logs", self._open_logs, why_not=self._why_no_task),
            *self.node_actions(),
        )

    def opened(self) -> None:
        self.fetch(lambda client: client.nodes.get(self._node_name), self._begin)

    def refused(self, error: HaiError) -> None:
        """Show the error on the page if the node cannot be loaded."""
        super().refused(error)
        if self._node is None:
            message = Text(
                text("refused", message=error.message), tones(self.app.current_theme)["bad"]
            )
            self.query_one("#card", Static).update(message)
            self.table.empty = ""
            self.table.refresh()

    def tasks_changed(self, ids: set[int]) -> None:
        if self._node is not None:
            self._reload_queue.add(ids)

    def page_resumed(self) -> None:
        """Load what may have changed while another page was on top."""
        if self._node is not None:
            self._load_queue()
            self._load_usage()

    def node_changed(self, node: Node) -> None:
        self._show(node)

    def on_virtual_table_opened(self) -> None:
        self._open_task()

    def _begin(self, node: Node) -> None:
        self._version, self._gpus = node.version, node.gpu_devices
        self._show(node)
        self._load_queue()
        self._load_usage()
        self.set_interval(_USAGE_SECONDS, self._load_usage)
        self.set_interval(_TICK_SECONDS, self._update_silence)
        run_in_background(self, self._watch, group="watch", exclusive=True)

    async def _watch(self) -> None:
        from hai_tui.feed.reconnecting_stream import ReconnectingStream

        client = await self.hai.session.client()
        group = self._node.group if self._node else ""

        def reopen() -> AsyncGenerator[WatchNodesResponse, None]:
            return client.nodes.watch(group, self._version, patience=0.0)

        await ReconnectingStream(self.hai.session.link, reopen, self._apply).run()

    def _apply(self, answer: WatchNodesResponse) -> None:
        self._version = max(self._version, answer.version)
        for node in answer.nodes:
            if node.name == self._node_name:
                self._show(node)

    def _show(self, node: Node) -> None:
        if self.is_ready:
            self._node = node
            self.refresh_frame()

    def refresh_frame(self) -> None:
        """Also draw the card again, because it depends on the caller, whose name may become known later."""
        super().refresh_frame()
        if self.is_ready and self._node is not None:
            self._draw(self._node)

    def _draw(self, node: Node) -> None:
        styles = tones(self.app.current_theme)
        user, now = self.hai.caller.name, self.hai.now()
        use = "\n".join(filter(None, (self._usage_text, *map(sentence, self._gpus))))
        card = node_card(node, user, styles, now=now, use=use, tenants=20)
        if not node.tenants:
            card.append("\n").append(text("node.nobody"), "dim")
        self.query_one("#card", Static).update(card)

    def _update_silence(self) -> None:
        """Draw the growing time for which agents are silent."""
        if self.is_ready and self._node is not None and silent_agents_on_node(self._node):
            self._draw(self._node)

    def _load_usage(self) -> None:
        group = self._node.group if self._node else ""
        if self.is_on_top:
            self.fetch(lambda client: client.usage.of_nodes(group), self._store_usage, group="use")
            if self._gpus:
                self.fetch(
                    lambda client: client.nodes.get(self._node_name), self._store_gpus, group="gpus"
                )

    def _store_usage(self, answer: ListNodeUsageResponse) -> None:
        usage = next((each for each in answer.nodes if each.node == self._node_name), None)
        self._usage_text = numbers(usage) if usage is not None else ""
        self.refresh_frame()

    def _store_gpus(self, node: Node) -> None:
        self._gpus = node.gpu_devices
        self.refresh_frame()

    def _load_queue(self) -> None:
        group = self._node.group if self._node else ""
        if self.is_on_top:
            self.fetch(lambda client: client.tasks.queue(group), self._show_queue, group="queue")

    def _show_queue(self, queue: Sequence[Task]) -> None:
        if not self.is_ready:
            return
        self._rows.clear()
        self._rows.update((task.id, task) for task in queue)
        self.table.show(list(self._rows))
        group = self._node.group if self._node else ""
        status = text("node.waiting", count=len(queue), group=group)
        fitting = next((task for task in queue if task.node_count <= 1), None)
        if fitting is not None:
            status += f" · {text('node.would_fit', id=fitting.id, name=fitting.name)}"
        self.status(status)

    def _why_no_task(self) -> str:
        return "" if self._node is not None and self._node.tenants else text("cluster.nobody")

    def _open_logs(self) -> None:
        if self._node is not None:
            tenant = self._node.tenants[0]
            self.hai.goto(f"logs {tenant.task_id} {tenant.rank}")

    def _open_task(self) -> None:
        if self.table.ids:
            self.hai.goto(f"task {self.table.cursor_id}")


def _columns() -> Sequence[Column]:
    return (
        Column(
            "place",
            text("col.place"),
            5,
            lambda t, now: str(t.waiting.queue_place or "-"),
            right=True,
        ),
        Column("id", "ID", 6, lambda t, now: str(t.id), right=True),
        Column("name", text("col.name"), 16, lambda t, now: t.name, flex=True),
        Column("user", text("col.user"), 10, lambda t, now: t.user, drop=2),
        Column(
            "level",
            text("col.level"),
            14,
            lambda t, now: priority_name(t.waiting.effective_priority),
            drop=3,
        ),
        Column("nodes", text("col.nodes"), 5, lambda t, now: str(t.node_count), right=True),
        Column(
            "age", text("col.age"), 7, lambda t, now: since(t.create_time, now), right=True, drop=4
        ),
        Column(
            "start",
            text("col.start"),
            14,
            lambda t, now: start_text(t.waiting.predicted_start, now),
            drop=1,
        ),
        Column(
            "why",
            text("col.why"),
            20,
            lambda t, now: Cell(t.waiting.message or t.waiting.reason or "-", "waits"),
            flex=True,
            drop=5,
        ),
    )

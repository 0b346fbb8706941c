"""The page of the cluster: a live map of all nodes, the node under the cursor, and charts of nodes and tasks over
time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import Container
from textual.widget import Widget

from hai.client.text.state_style import StateStyle
from hai.v1.task_pb2 import TASK_STATE_SUSPENDED, TASK_STATE_WAITING_INIT
from hai_tui.actions import Action
from hai_tui.cluster.model import CONDITION_STYLES, NodeModel, condition, per_hour
from hai_tui.cluster.text import Tones, node_card, summary
from hai_tui.cluster.tree import Branch, branches
from hai_tui.cluster.usage import legend, node_style, numbers
from hai_tui.feed.debouncer import Debouncer
from hai_tui.formatting.cells import Cell, Column
from hai_tui.formatting.charts import area, spark
from hai_tui.i18n import text
from hai_tui.runtime.textual_compat import later, run_in_background
from hai_tui.screens.cluster.node_actions import NodeActionsPage
from hai_tui.style.theme import tones
from hai_tui.views.node_labels import labels_text
from hai_tui.views.silent_agents import node_silence_texts
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.node_map import NodeMap
from hai_tui.widgets.plain import Static
from hai_tui.widgets.table.virtual_table import VirtualTable

if TYPE_CHECKING:
    from hai.v1.node_pb2 import Node
    from hai.v1.node_service_pb2 import WatchNodesResponse
    from hai.v1.usage_service_pb2 import ListNodeUsageResponse, NodeUsage

_REPAINT_SECONDS = 0.25
_SAMPLE_SECONDS = 5.0
_USAGE_SECONDS = 20.0
_CHART_HOURS = 24
_TICK_SECONDS = 1.0
_INDENT = "  "


class ClusterPage(NodeActionsPage):
    """Shows the map or the tree on the left; a node and charts on the right, or below on a narrow screen."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - as Textual declares it
    DEFAULT_CSS = """
    ClusterPage #content { layout: vertical; }
    ClusterPage #views { layout: horizontal; height: 1fr; }
    ClusterPage #summary { height: 1; padding: 0 1; background: $surface; }
    ClusterPage #left { width: 1fr; height: 1fr; }
    ClusterPage #side { width: 42; height: 1fr; padding: 0 1; border-left: solid $panel; }
    ClusterPage.-narrow #views { layout: vertical; }
    ClusterPage.-narrow #side { width: 1fr; height: 9; border-left: none; border-top: solid $panel; }
    ClusterPage VirtualTable { display: none; }
    ClusterPage.tree VirtualTable { display: block; }
    ClusterPage.tree NodeMap { display: none; }
    """

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self._model = NodeModel()
        self._branches: dict[str, Branch] = {}
        self._redraw = Debouncer(self._draw, _REPAINT_SECONDS, partial(later, self))
        self._initial_query = " ".join(arguments)
        self._usage: dict[str, NodeUsage] = {}
        self._shows_usage = False

    @property
    def node_map(self) -> NodeMap:
        return self.query_one(NodeMap)

    @property
    def table(self) -> VirtualTable:
        return self.query_one(VirtualTable)

    @property
    def node(self) -> Node | None:
        """Return the node under the cursor of the map or of the tree."""
        if not self.is_mounted:
            return None
        if self.has_class("tree"):
            branch = self._branches.get(self.table.cursor_id)
            return self._model.nodes.get(branch.node) if branch else None
        return self.node_map.node

    def content(self) -> Widget:
        column = Column("node", text("page.cluster"), 20, self._cell, flex=True)
        tree = VirtualTable((column,), self._branches.get, self.hai.now, empty=text("loading"))
        node_map = NodeMap(self._model.nodes, self._style_of)
        node_map.empty = text("loading")
        views = Container(Container(node_map, tree, id="left"), Static(id="side"), id="views")
        return Container(Static(id="summary"), views)

    def focus_content(self) -> None:
        self.set_focus(self.table if self.has_class("tree") else self.node_map)

    def actions(self) -> Sequence[Action]:
        return (
            Action("enter,d", "open", "cluster.open", self._open, why_not=self._why_no_node),
            Action("/", "find", "cluster.find", self._ask_search),
            Action("v", "tree", "cluster.tree", self._toggle_tree),
            Action("U", "use", "cluster.use", self._toggle_usage),
            Action(
                "t", "same", "cluster.same_task", self._mark_same_task, why_not=self._why_no_task
            ),
            Action("n", "nodes", "cluster.list", lambda: self.hai.goto("nodes")),
            Action("w", "queue", "cluster.queue", lambda: self.hai.goto("queue")),
            *self.node_actions(),
        )

    def opened(self) -> None:
        """Watch the nodes, and record their usage at intervals."""
        run_in_background(self, self._watch, group="watch")
        self.set_interval(_SAMPLE_SECONDS, self._sample)
        self.set_interval(_TICK_SECONDS, self._update_silence)
        self.set_interval(_USAGE_SECONDS, self._load_usage)
        self._load_usage()

    def on_resize(self) -> None:
        self._redraw.add(set())

    def tasks_changed(self, ids: set[int]) -> None:
        """Draw the number of waiting tasks again."""
        self._redraw.add(set())

    def node_changed(self, node: Node) -> None:
        """Draw the change without waiting for the watch."""
        self._redraw.add(set())

    async def _watch(self) -> None:
        from hai_tui.feed.reconnecting_stream import ReconnectingStream

        client = await self.hai.session.client()

        def reopen() -> AsyncGenerator[WatchNodesResponse, None]:
            return client.nodes.watch("", self._model.version, patience=0.0)

        await ReconnectingStream(self.hai.session.link, reopen, self._apply).run()

    def _apply(self, answer: WatchNodesResponse) -> None:
        first = not self._model.loaded
        if self._model.apply(answer) or first:
            self._sample()
            self._redraw.add(set())

    def _sample(self) -> None:
        self._model.sample(self.hai.now())
        self._redraw.add(set())

    def _load_usage(self) -> None:
        if self.is_on_top:
            self.fetch(lambda client: client.usage.of_nodes(), self._store_usage, group="use")

    def _store_usage(self, answer: ListNodeUsageResponse) -> None:
        self._usage = {use.node: use for use in answer.nodes}
        self._redraw.add(set())

    # Drawing.

    def _style_of(self, node: Node) -> StateStyle:
        user = self.hai.caller.name
        if self._shows_usage:
            return node_style(node, user, self._usage)
        return CONDITION_STYLES[condition(node, user)]

    def _draw(self, _: set[int]) -> None:
        if not self.is_ready:
            return
        user = self.hai.caller.name
        self.node_map.empty = self.table.empty = text(
            "none.nodes" if self._model.loaded else "loading"
        )
        self.node_map.show()
        self._branches.clear()
        tree = branches(self._model.nodes.values(), user, self.hai.now())
        self._branches.update((branch.key, branch) for branch in tree)
        self.table.show(list(self._branches))
        styles = tones(self.app.current_theme)
        if self._shows_usage:
            line = legend(self._model.nodes, self._usage, styles)
        else:
            line = summary(self._model.counts(user), self._count_waiting_tasks(), styles)
        self.query_one("#summary", Static).update(line)
        self._draw_side()
        if self._initial_query and self._model.loaded:
            self._find(self._initial_query)
            self._initial_query = ""

    def _update_silence(self) -> None:
        """Draw the growing time for which agents are silent."""
        if self._model.silent:
            self._redraw.add(set())

    def _draw_side(self) -> None:
        side, node = self.query_one("#side", Static), self.node
        styles = tones(self.app.current_theme)
        narrow = self.has_class("-narrow")
        card = self._card(node, styles, 2 if narrow else 8) if node else Text()
        if not narrow:
            card.append("\n\n").append_text(self._charts(max(10, side.size.width - 2)))
        side.update(card)
        self._update_status(node)

    def _card(self, node: Node, styles: Tones, tenants: int) -> Text:
        usage = self._usage.get(node.name)
        usage_text = numbers(usage) if usage is not None else ""
        user, now = self.hai.caller.name, self.hai.now()
        return node_card(node, user, styles, now=now, use=usage_text, tenants=tenants)

    def _update_status(self, node: Node | None) -> None:
        if node is not None:
            condition_text = text(f"node.{condition(node, self.hai.caller.name)}")
            silent = node_silence_texts(node, self.hai.now())
            self.status(" · ".join(filter(None, (node.name, condition_text, node.reason, *silent))))
        self.refresh_frame()

    def _charts(self, width: int) -> Text:
        styles = tones(self.app.current_theme)
        usage_samples = [share for _, share in self._model.usage_samples]
        current = f"{usage_samples[-1]:.0%}" if usage_samples else "-"
        charts = Text().append(text("cluster.held", part=current) + "\n", "bold")
        for line in area(usage_samples, width, 3, 1.0):
            charts.append(line + "\n", styles["busy"])
        model = self.hai.session.tasks
        counts = per_hour(model.tasks.values() if model else (), self.hai.now(), _CHART_HOURS)
        for key, values, tone in zip(
            ("created", "finished"), counts, ("waits", "done"), strict=True
        ):
            top = max([1, *values])
            charts.append(
                f"\n{text(f'cluster.{key}', count=sum(values), hours=_CHART_HOURS)}\n", "bold"
            )
            blocks = spark(
                [count or None for count in values], top
            )  # an hour without tasks is blank
            charts.append(blocks, styles[tone])
        return charts

    def _count_waiting_tasks(self) -> int:
        model = self.hai.session.tasks
        queued = (TASK_STATE_WAITING_INIT, TASK_STATE_SUSPENDED)
        return sum(task.state in queued for task in (model.tasks.values() if model else ()))

    def _cell(self, branch: Branch, now: float) -> Cell:
        return Cell(_INDENT * branch.depth + branch.cell.text, branch.cell.tone)

    def on_node_map_moved(self) -> None:
        self._draw_side()

    def on_virtual_table_moved(self) -> None:
        self._draw_side()

    # Actions.

    def on_node_map_opened(self, event: NodeMap.Opened) -> None:
        self.hai.goto(f"node {event.node_name}")

    def on_virtual_table_opened(self) -> None:
        """Open the task of a line that is a task, else the node."""
        branch = self._branches.get(self.table.cursor_id)
        if branch is not None and branch.task:
            self.hai.goto(f"task {branch.task}")
        else:
            self._open()

    def _open(self) -> None:
        if self.node is not None:
            self.hai.goto(f"node {self.node.name}")

    def _toggle_tree(self) -> None:
        self.toggle_class("tree")
        self.focus_content()
        self._draw_side()

    def _toggle_usage(self) -> None:
        self._shows_usage = not self._shows_usage
        self._load_usage()
        self._redraw.add(set())

    def _why_no_task(self) -> str:
        node = self.node
        return "" if node is not None and node.tenants else text("cluster.nobody")

    def _mark_same_task(self) -> None:
        node = self.node
        if node is not None:
            task = node.tenants[0].task_id
            self.node_map.marked_task = 0 if self.node_map.marked_task == task else task
            self.node_map.refresh()
            if self.node_map.marked_task:
                self.hai.say(text("cluster.same.shown", task=task))

    def _ask_search(self) -> None:
        self.ask_line(Question(text("cluster.find.ask"), self._end_search, changed=self._find))

    def _end_search(self, query: str) -> None:
        self._find(query)
        if query.strip() and self._first_match(query) is None:
            self.hai.say(text("cluster.find.none", words=query.strip()), warning=True)

    def _first_match(self, query: str) -> Node | None:
        query_text = query.strip().lower()
        return next(
            (n for n in self._model.nodes.values() if query_text and _matches(n, query_text)), None
        )

    def _find(self, query: str) -> None:
        """Move the cursor to the first node that matches."""
        node = self._first_match(query)
        if node is None:
            return
        self.node_map.cursor = node.name
        self.node_map.action_go(0, 0)
        self.table.select(f"n/{node.name}")


def _matches(node: Node, query_text: str) -> bool:
    tenants = (f"{t.task_id} {t.task_name} {t.user}" for t in node.tenants)
    node_terms = (node.name, f"{node.group}#{node.zone}", labels_text(node))
    return query_text in " ".join((*node_terms, *tenants)).lower()

"""The list of tasks: selects, sorts and updates its rows, and writes the status line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widget import Widget

from hai.client.errors import HaiError
from hai.client.tasks.silent_agents import silent_agents_of_run
from hai_tui.feed.sorted_filtered_index import SortedFilteredIndex
from hai_tui.formatting.table import printable
from hai_tui.i18n import text
from hai_tui.name_warnings import filter_warnings
from hai_tui.runtime.textual_compat import later, run_in_background
from hai_tui.screens.tasks.column_choice import chosen
from hai_tui.screens.tasks.columns import columns
from hai_tui.screens.tasks.task_actions import TaskActionsPage
from hai_tui.style.theme import tones
from hai_tui.tasks.filter import Filter, FilterError, parse
from hai_tui.tasks.usage_columns import TaskUsage
from hai_tui.widgets.table.virtual_table import VirtualTable

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai.v1.usage_service_pb2 import ListNodeUsageResponse
    from hai_tui.feed.task_row import TaskRow

_OLDER = 1000
"""Older tasks that a filter asks the server for, at most."""
_FLASH_SECONDS = 0.8
_FLASH_MOST = 20
_REST_SECONDS = 0.1


class TaskListPage(TaskActionsPage):
    """The table and its status line; what keys do to them is `tasks/tasks_page.py`."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self._filter = Filter()
        self._initial_filter = " ".join(arguments)
        self._error = ""
        self._asking = False
        self._moving = False
        self._versions: dict[int, int] = {}
        self._sort = ("id", True)
        self._shown: SortedFilteredIndex[TaskRow] = SortedFilteredIndex()
        self._use = TaskUsage()

    @property
    def table(self) -> VirtualTable:
        """The table."""
        return self.query_one(VirtualTable)

    def content(self) -> Widget:
        """The table."""
        return VirtualTable(self._columns(), self._row, self.hai.now)

    def title_text(self) -> str:
        """The filter belongs to the title when it came with the page's name."""
        return self.entry.title

    def _columns(self) -> list:  # type: ignore[type-arg]
        return chosen(columns(self.hai.waiting, self._use), self.hai.preferences.strings("columns"))

    def _row(self, id: int) -> Task | None:
        model = self.hai.session.tasks
        return model.get(id) if model else None

    def tasks_changed(self, ids: set[int]) -> None:
        """Look again at these; at all of them when nothing was shown yet."""
        model = self.hai.session.tasks
        if model is None or not self.is_ready:
            return
        self._show(self._shown.update(model.rows, ids))
        self._flash(ids)

    def refresh_usage(self) -> None:
        """Ask what is used, as long as a column shows it."""
        if self.on_top and any(self.table.shows(key) for key in self._use.cells()):
            self.fetch(lambda client: client.usage.of_nodes(), self._take_use, group="use")

    def _take_use(self, answer: ListNodeUsageResponse) -> None:
        model = self.hai.session.tasks
        self._use.update(answer.nodes, model.tasks.values() if model else ())
        self.table.redraw()

    def _flash(self, ids: set[int]) -> None:
        """What changed under the reader's eyes stands out for a moment, unless most of the table does."""
        table, new = self.table, {id: self._version(id) for id in ids}
        changed_ids = {
            id for id, version in new.items() if self._versions.get(id, version) != version
        }
        self._versions |= new
        table.changed(ids)
        if changed_ids and len(changed_ids) <= _FLASH_MOST:
            table.fresh |= changed_ids
            later(self, _FLASH_SECONDS, lambda: self._calm(changed_ids))

    def _version(self, id: int) -> int:
        task = self._row(id)
        return task.version if task else 0

    def _calm(self, ids: set[int]) -> None:
        self.table.fresh -= ids
        self.table.changed(ids)

    def _show(self, order: Sequence[int]) -> None:
        model, table = self.hai.session.tasks, self.table
        loaded = model is not None and model.loaded
        table.empty = text(
            "loading" if not loaded else "tasks.nomatch" if self._filter.source else "tasks.empty"
        )
        if table.sorted_by != self._sort or not order:
            table.sorted_by = self._sort
            table.refresh()
        table.reorder(order)
        self.write_status()

    def sort_again(self) -> None:
        """The order is another."""
        model = self.hai.session.tasks
        by = {column.key: column for column in self.table.columns}
        column = by.get(self._sort[0]) or by["id"]
        key = column.sort or (lambda task: task.id)
        facts = model.rows if model else {}
        self._show(self._shown.sort_by(facts, lambda of: key(of.task), self._sort[1]))

    def _match_again(self, before: Filter) -> None:
        """The filter is another; one that is narrower asks the rest of what is shown."""
        model, now, narrowed = (
            self.hai.session.tasks,
            self.hai.now,
            self._filter.remaining_after(before),
        )
        facts, among = model.rows if model else {}, self._filter.among
        left = None if narrowed is None else lambda tasks: narrowed.among(tasks, now())
        self._show(self._shown.set_filter(facts, lambda tasks: among(tasks, now()), left))

    def write_status(self) -> None:
        """Counts, filter, marks; or what is wrong with the filter."""
        model, table = self.hai.session.tasks, self.table
        styles = tones(self.hai.current_theme)
        if wrong := self._error or self._filter.problem:
            self.status(Text(f"✗ {wrong}", styles["bad"]))
            return
        total = len(model.tasks) if model else 0
        key = "tasks.count" if self._filter.source else "tasks.count.all"
        line = Text(text(key, shown=len(table.ids), all=total))
        if self._filter.source:
            line.append(" · ").append(self._filter.source, styles["waits"])
        if table.marked:
            line.append(" · ").append(text("tasks.marked", count=len(table.marked)), styles["busy"])
        name, reverse = self._sort
        if (name, reverse) != ("id", True):
            facts = {"column": text(f"col.{name}"), "sign": "▼" if reverse else "▲"}
            line.append(" · " + text("tasks.sorted", **facts))
        if self._asking:
            line.append(" · " + text("tasks.asking"), styles["busy"])
        elif sentence := self._cursor_reason():
            line.append(" · ").append(sentence, styles["quiet"])
        self.status(line)

    def tick(self) -> None:
        """The status line counts for how long the agent of the task under the cursor has been silent."""
        task = self._row(self.table.cursor_id) if self.on_top else None
        if task is not None and silent_agents_of_run(task.run) is not None:
            self.write_status()

    def _cursor_reason(self) -> str:
        """Why the task under the cursor is as it is, where no column says so, or not all of it."""
        table = self.table
        task = self._row(table.cursor_id)
        if task is None or (table.shows("why") and silent_agents_of_run(task.run) is None):
            return ""
        from hai_tui.views.silent_agents import silent_task

        waits, silent = self.hai.waiting(task), silent_task(task, self.hai.now())
        sentence = silent or waits.message or waits.reason or task.reason or task.run.reason
        return f"{task.id}: {printable(sentence)}" if sentence else ""

    def apply_filter(self, source: str, *, older: bool = True) -> None:
        """Show what matches; a line that means nothing is told of and changes nothing."""
        before = self._filter
        try:
            self._filter = parse(source.strip(), self.hai.caller.name)
            self._error = ""
        except FilterError as error:
            self._error = str(error)
            self.write_status()
            return
        if self._filter.term_texts or before.term_texts:
            self._match_again(before)
        if older and self._filter.source:
            self._ask_older()

    def _ask_older(self) -> None:
        self._asking = True
        self.write_status()
        load_older = partial(self._load_older, self._filter)
        run_in_background(self, load_older, group="older", exclusive=True)

    async def _load_older(self, requested: Filter) -> None:
        """Tasks beyond what is loaded; answers to a filter that has gone are dropped with the worker."""
        session = self.hai.session
        try:
            client = await session.client()
            page = await client.tasks.list(filter=requested.server, page_size=_OLDER)
            session.merge(page.tasks)
            if self.is_ready and not self.table.ids:
                for warning in await filter_warnings(client, requested.source):
                    self.hai.say(warning, warning=True)
        except HaiError:
            return  # what is loaded is shown; the banner tells of a server that is away
        finally:
            self._asking = False
            if self.is_ready:
                self.write_status()

    def chosen_ids(self) -> list[int]:
        """The marked ones, else the one under the cursor."""
        return self.table.chosen

    def on_virtual_table_marked(self) -> None:
        """The status line counts them."""
        self.write_status()

    def on_virtual_table_moved(self) -> None:
        """Other actions may be allowed on another task; it is enough to say so when the cursor rests."""
        if not self._moving:
            self._moving = True
            later(self, _REST_SECONDS, self._cursor_rests)

    def _cursor_rests(self) -> None:
        self._moving = False
        self.write_status()
        self.refresh_keys()

"""The list of tasks: selects, sorts and updates rows, and writes the status line."""

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
from hai_tui.screens.tasks.column_choice import select_columns
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

_MAX_OLDER_TASKS = 1000
"""A filter loads at most so many older tasks from the server."""
_FLASH_SECONDS = 0.8
_MAX_FLASHING_ROWS = 20
_CURSOR_REST_SECONDS = 0.1


class TaskListPage(TaskActionsPage):
    """The table and its status line; `tasks/tasks_page.py` handles the keys."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self._filter = Filter()
        self._initial_filter = " ".join(arguments)
        self._filter_error = ""
        self._loads_older = False
        self._cursor_moves = False
        self._versions: dict[int, int] = {}
        self._sort = ("id", True)  # column, and whether the order is descending
        self._index: SortedFilteredIndex[TaskRow] = SortedFilteredIndex()
        self._usage = TaskUsage()

    @property
    def table(self) -> VirtualTable:
        return self.query_one(VirtualTable)

    def content(self) -> Widget:
        return VirtualTable(self._columns(), self._row, self.hai.now)

    def title_text(self) -> str:
        """Return the title without the filter that the page was opened with."""
        return self.entry.title

    def _columns(self) -> list:  # type: ignore[type-arg]
        return select_columns(
            columns(self.hai.waiting, self._usage), self.hai.preferences.strings("columns")
        )

    def _row(self, id: int) -> Task | None:
        model = self.hai.session.tasks
        return model.get(id) if model else None

    def tasks_changed(self, ids: set[int]) -> None:
        """Update the rows of these tasks."""
        model = self.hai.session.tasks
        if model is None or not self.is_ready:
            return
        self._show(self._index.update(model.rows, ids))
        self._flash(ids)

    def refresh_usage(self) -> None:
        """Load the usage if a visible column shows it."""
        if self.is_on_top and any(self.table.shows_column(key) for key in self._usage.cells()):
            self.fetch(lambda client: client.usage.of_nodes(), self._store_usage, group="use")

    def _store_usage(self, answer: ListNodeUsageResponse) -> None:
        model = self.hai.session.tasks
        self._usage.update(answer.nodes, model.tasks.values() if model else ())
        self.table.redraw()

    def _flash(self, ids: set[int]) -> None:
        """Highlight changed rows for a moment, unless many rows have changed."""
        table, versions = self.table, {id: self._version(id) for id in ids}
        known = self._versions
        changed_ids = {id for id in ids if known.get(id, versions[id]) != versions[id]}
        known |= versions
        table.changed(ids)
        if changed_ids and len(changed_ids) <= _MAX_FLASHING_ROWS:
            table.fresh |= changed_ids
            later(self, _FLASH_SECONDS, lambda: self._end_flash(changed_ids))

    def _version(self, id: int) -> int:
        task = self._row(id)
        return task.version if task else 0

    def _end_flash(self, ids: set[int]) -> None:
        self.table.fresh -= ids
        self.table.changed(ids)

    def _show(self, order: Sequence[int]) -> None:
        model, table = self.hai.session.tasks, self.table
        loaded = model is not None and model.loaded
        empty = "tasks.nomatch" if self._filter.source else "tasks.empty"
        table.empty = text(empty if loaded else "loading")
        if table.sorted_by != self._sort or not order:
            table.sorted_by = self._sort
            table.refresh()
        table.reorder(order)
        self.write_status()

    def sort_again(self) -> None:
        """Sort by another column or in another direction."""
        model = self.hai.session.tasks
        columns = {column.key: column for column in self.table.columns}
        column = columns.get(self._sort[0]) or columns["id"]
        key = column.sort or (lambda task: task.id)
        rows = model.rows if model else {}
        self._show(self._index.sort_by(rows, lambda row: key(row.task), self._sort[1]))

    def _select_again(self, before: Filter) -> None:
        """Select rows by the new filter; a narrower filter only selects from the rows that are shown."""
        model, now = self.hai.session.tasks, self.hai.now
        select, remaining = self._filter.among, self._filter.remaining_after(before)
        narrower = None if remaining is None else lambda rows: remaining.among(rows, now())
        rows = model.rows if model else {}
        self._show(self._index.set_filter(rows, lambda rows: select(rows, now()), narrower))

    def write_status(self) -> None:
        """Show counts, filter and marks, or what is wrong with the filter."""
        model, table = self.hai.session.tasks, self.table
        styles = tones(self.hai.current_theme)
        if error := self._filter_error or self._filter.problem:
            self.status(Text(f"✗ {error}", styles["bad"]))
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
        if self._loads_older:
            line.append(" · " + text("tasks.asking"), styles["busy"])
        elif reason := self._cursor_reason():
            line.append(" · ").append(reason, styles["quiet"])
        self.status(line)

    def update_silence(self) -> None:
        """Update the time for which the agent of the task under the cursor has been silent."""
        task = self._row(self.table.cursor_id) if self.is_on_top else None
        if task is not None and silent_agents_of_run(task.run) is not None:
            self.write_status()

    def _cursor_reason(self) -> str:
        """Return the reason of the task under the cursor if no column shows all of it."""
        table = self.table
        task = self._row(table.cursor_id)
        if task is None or (table.shows_column("why") and silent_agents_of_run(task.run) is None):
            return ""
        from hai_tui.views.silent_agents import task_silence_text

        waiting, silent = self.hai.waiting(task), task_silence_text(task, self.hai.now())
        reason = silent or waiting.message or waiting.reason or task.reason or task.run.reason
        return f"{task.id}: {printable(reason)}" if reason else ""

    def apply_filter(self, source: str, *, older: bool = True) -> None:
        """Show the tasks that match; an invalid filter is reported and changes nothing."""
        before = self._filter
        try:
            self._filter = parse(source.strip(), self.hai.caller.name)
            self._filter_error = ""
        except FilterError as error:
            self._filter_error = str(error)
            self.write_status()
            return
        if self._filter.term_texts or before.term_texts:
            self._select_again(before)
        if older and self._filter.source:
            self._start_loading_older()

    def _start_loading_older(self) -> None:
        self._loads_older = True
        self.write_status()
        load_older = partial(self._load_older, self._filter)
        run_in_background(self, load_older, group="older", exclusive=True)

    async def _load_older(self, filter: Filter) -> None:
        """Load matching tasks that are not loaded yet. A new filter cancels the request."""
        session = self.hai.session
        try:
            client = await session.client()
            page = await client.tasks.list(filter=filter.server, page_size=_MAX_OLDER_TASKS)
            session.merge(page.tasks)
            if self.is_ready and not self.table.ids:
                for warning in await filter_warnings(client, filter.source):
                    self.hai.say(warning, warning=True)
        except HaiError:
            return  # the list shows what is loaded; the banner says that the server is away
        finally:
            self._loads_older = False
            if self.is_ready:
                self.write_status()

    def chosen_ids(self) -> list[int]:
        return self.table.chosen

    def on_virtual_table_marked(self) -> None:
        self.write_status()

    def on_virtual_table_moved(self) -> None:
        """Update status line and keys, which depend on the task under the cursor, once the cursor rests."""
        if not self._cursor_moves:
            self._cursor_moves = True
            later(self, _CURSOR_REST_SECONDS, self._cursor_rests)

    def _cursor_rests(self) -> None:
        self._cursor_moves = False
        self.write_status()
        self.refresh_keys()

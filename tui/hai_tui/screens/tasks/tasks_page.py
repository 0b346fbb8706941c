"""The page of all tasks, updated live: filter, views, order, marks, and actions on one or many tasks."""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hai_tui.actions import Action
from hai_tui.formatting.cells import Cell, Column
from hai_tui.i18n import text
from hai_tui.screens.tasks.column_choice import ColumnDialog
from hai_tui.screens.tasks.columns import columns
from hai_tui.screens.tasks.list_model import TaskListPage
from hai_tui.widgets.dialogs.choice import Choice
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.table.virtual_table import VirtualTable

_VIEWS = {
    "all": "",
    "mine": "user:me",
    "running": "status:running",
    "queued": "status:queued",
    "failed": "status:failed age:<7d",
    "starred": "starred:true",
}
"""The views that are always there: name (its label is the text view.NAME) and filter. Users add their own."""

_FAULTS = "status:failed,queued"
"""The filter for tasks that may need attention."""

_USAGE_SECONDS = 20.0
_TICK_SECONDS = 1.0


class TasksPage(TaskListPage):
    """The list of tasks, which is the first page of the app."""

    def actions(self) -> Sequence[Action]:
        return [
            Action("enter,d", "open", "action.open", self._open),
            Action("l", "logs", "action.logs", self._open_logs),
            Action("/", "filter", "action.filter", self._ask_filter),
            Action("v", "views", "action.views", self._choose_view),
            Action("n", "submit", "action.submit", self._submit, writes=True),
            *self.task_actions(),
            *self.dependency_actions(),
            Action("#", "alike", "action.alike", self._toggle_alike, in_footer=False),
            Action("y", "yaml", "action.yaml", self._open_yaml, in_footer=False),
            Action("escape", "clear", "action.clear", self._clear, in_footer=False),
            Action("A", "again", "action.again", self._submit_again, writes=True, in_footer=False),
            Action("m", "mine", "action.mine", self._toggle_mine, in_footer=False),
            Action("ctrl+z", "faults", "action.faults", self._toggle_faults, in_footer=False),
            Action("V", "saveview", "action.saveview", self._ask_view_name, in_footer=False),
            Action("o", "sort", "action.sort", self._sort_by_next_column, in_footer=False),
            Action("O", "reverse", "action.reverse", self._reverse_order, in_footer=False),
            Action("C", "columns", "action.columns", self._choose_columns, in_footer=False),
            Action("w", "wide", "action.wide", self._toggle_wide, in_footer=False),
            Action("space", "mark", "action.mark", self._mark, in_footer=False),
            Action("ctrl+a", "markall", "action.markall", self._mark_all, in_footer=False),
            Action("=", "diff", "action.diff", self._diff, in_footer=False),
            Action("c", "copy", "action.copy", self._copy, in_footer=False),
            Action("E", "export", "action.export", self._export, in_footer=False),
        ]

    def opened(self) -> None:
        self._sort = _sort_of(self.hai.preferences.text("sort", "id-"))
        self.sort_again()
        self.apply_filter(self._initial_filter)
        self.set_interval(_USAGE_SECONDS, self.refresh_usage)
        self.set_interval(_TICK_SECONDS, self.update_silence)
        self.call_after_refresh(self.refresh_usage)

    # Filter and views.

    def _ask_filter(self) -> None:
        before = self._filter.source
        question = Question(
            text("filter.label"),
            self._set_filter,
            value=before,
            placeholder=text("filter.placeholder"),
            changed=lambda line: self.apply_filter(line, older=False),
            is_invalid=lambda: bool(self._filter_error),
            cancelled=lambda: self.apply_filter(before),
            history=self.hai.preferences.strings("filters"),
        )
        self.ask_line(question)

    def _set_filter(self, line: str) -> None:
        self.apply_filter(line)
        if line.strip():
            earlier = [each for each in self.hai.preferences.strings("filters") if each != line]
            self.hai.preferences.put("filters", [line, *earlier][:50])

    def _clear(self) -> None:
        if self.table.marked:
            self.table.unmark()
        elif self._filter.source:
            self.apply_filter("")
        else:
            self.hai.back()

    def _toggle(self, source: str) -> None:
        self.apply_filter("" if self._filter.source == source else source)

    def _toggle_mine(self) -> None:
        self._toggle("user:me")

    def _toggle_faults(self) -> None:
        self._toggle(_FAULTS)

    def _toggle_alike(self) -> None:
        """Show the tasks with the same tags, such as those of a sweep."""
        tasks = self.chosen_tasks()
        if tasks and tasks[0].tags:
            self._toggle(" ".join(f"tag:{tag}" for tag in tasks[0].tags))
        else:
            self.hai.say(text("alike.none"), warning=True)

    def _choose_view(self) -> Awaitable[None]:
        stored = {name: str(line) for name, line in self.hai.preferences.table("views").items()}
        names = {name: text(f"view.{name}") for name in _VIEWS} | {name: name for name in stored}
        lines = _VIEWS | stored
        choices = [
            Choice(name, str(i) if i < 10 else "", f"{content:<26} {lines[name]}")
            for i, (name, content) in enumerate(names.items(), start=1)
        ]
        return self._show_view(self.choose(text("view.title"), choices), lines)

    async def _show_view(self, answer: Awaitable[str], lines: Mapping[str, str]) -> None:
        if name := await answer:
            self.apply_filter(lines[name])

    def _ask_view_name(self) -> None:
        self.ask_line(Question(text("view.label"), self._save_view))

    def _save_view(self, name: str) -> None:
        if name.strip():
            views = {**self.hai.preferences.table("views"), name.strip(): self._filter.source}
            self.hai.preferences.put("views", views)
            self.hai.say(text("view.saved", name=name.strip()))

    # Order and columns.

    def on_virtual_table_header_clicked(self, event: VirtualTable.HeaderClicked) -> None:
        """Sort by the clicked column; reverse the order if it is sorted already."""
        sortable = {column.key for column in self.table.columns if column.sort}
        if event.key in sortable:
            self._sort_by(event.key, not self._sort[1] if self._sort[0] == event.key else False)

    def _sort_by(self, key: str, reverse: bool) -> None:
        self._sort = (key, reverse)
        self.hai.preferences.put("sort", f"{key}{'-' if reverse else '+'}")
        self.sort_again()

    def _sort_by_next_column(self) -> None:
        keys = [column.key for column in self.table.columns if column.sort]
        position = keys.index(self._sort[0]) if self._sort[0] in keys else -1
        key = keys[(position + 1) % len(keys)]
        self._sort_by(key, key == "id")

    def _reverse_order(self) -> None:
        self._sort_by(self._sort[0], not self._sort[1])

    def _choose_columns(self) -> None:
        visible_keys = [column.key for column in self.table.columns]
        dialog = ColumnDialog(columns(self.hai.waiting), visible_keys)
        self.hai.push_screen(dialog, self._set_columns)

    def _set_columns(self, keys: list[str] | None) -> None:
        if keys:
            self.hai.preferences.put("columns", keys)
            self.table.set_columns(self._columns())
            self.call_after_refresh(self.refresh_usage)

    def _toggle_wide(self) -> None:
        self.table.all_columns = not self.table.all_columns
        self.table.set_columns(self._columns())

    # Actions on tasks.

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        self.hai.goto(f"task {event.id}")

    def _mark(self) -> None:
        self.table.action_mark()

    def _mark_all(self) -> None:
        self.table.mark_all()

    def _goto(self, line: str) -> None:
        """Open the page that a line names; `{id}` in it is the task under the cursor."""
        id = self.table.cursor_id
        if id is None:
            self.hai.say(text("none.chosen"), warning=True)
        else:
            self.hai.goto(line.format(id=id))

    def _open(self) -> None:
        self._goto("task {id}")

    def _open_logs(self) -> None:
        self._goto("logs {id}")

    def _open_yaml(self) -> None:
        self._goto("task {id} spec")

    def _submit_again(self) -> None:
        self._goto("submit {id}")

    def _submit(self) -> None:
        self.hai.goto("submit")

    def _copy(self) -> None:
        ids = " ".join(map(str, self.chosen_ids()))
        if ids:
            self.hai.copy_to_clipboard(ids)
            self.hai.say(text("said.copied", what=ids))

    def _diff(self) -> None:
        ids = self.chosen_ids()
        if len(ids) != 2:
            self.hai.say(text("diff.need"), warning=True)
            return
        self.hai.goto(f"diff {min(ids)} {max(ids)}")

    async def _export(self) -> None:
        path = Path(f"hai-tasks-{int(self.hai.now())}.csv")

        async def write() -> str:
            _write_csv(path, self.table.columns, map(self._row, self.table.ids), self.hai.now())
            return text("export.done", count=len(self.table.ids), path=path)

        await self.save(path, write)


def _sort_of(stored_sort: str) -> tuple[str, bool]:
    return stored_sort.rstrip("+-") or "id", stored_sort.endswith("-")


def _write_csv(path: Path, columns: Sequence[Column], rows: Iterable[Any], now: float) -> None:
    """Write the visible cells as csv. A leading character that starts a formula in spreadsheets is quoted."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.key for column in columns])
        for row in rows:
            writer.writerow([_csv_text(column.cell(row, now)) for column in columns])


def _csv_text(cell: Cell | str) -> str:
    content = cell.text if isinstance(cell, Cell) else cell
    return f"'{content}" if content[:1] in ("=", "+", "-", "@") and content != "-" else content

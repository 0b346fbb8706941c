"""All tasks, live: filter, views, order, marks, and what can be done to one or to many."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from hai_tui.actions import Action
from hai_tui.i18n import text
from hai_tui.screens.tasks.column_choice import ColumnDialog
from hai_tui.screens.tasks.columns import columns
from hai_tui.screens.tasks.list_model import TaskListPage
from hai_tui.screens.tasks.saved_views import FAULTS, VIEWS
from hai_tui.widgets.dialogs.choice import Choice
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.table.export import write_csv
from hai_tui.widgets.table.virtual_table import VirtualTable

USE_SECONDS = 20.0
"""How often columns of use ask anew."""
_TICK_SECONDS = 1.0


class TasksPage(TaskListPage):
    """The list that people keep open all day."""

    def actions(self) -> Sequence[Action]:
        """What can be done here, the most important first."""
        return [
            Action("enter,d", "open", "action.open", self._open),
            Action("l", "logs", "action.logs", self._logs),
            Action("/", "filter", "action.filter", self._ask_filter),
            Action("v", "views", "action.views", self._views),
            Action("n", "submit", "action.submit", self._submit, writes=True),
            *self.task_actions(),
            *self.dependency_actions(),
            Action("#", "alike", "action.alike", self._alike, in_footer=False),
            Action("y", "yaml", "action.yaml", self._yaml, in_footer=False),
            Action("escape", "clear", "action.clear", self._clear, in_footer=False),
            Action("A", "again", "action.again", self._again, writes=True, in_footer=False),
            Action("m", "mine", "action.mine", self._mine, in_footer=False),
            Action("ctrl+z", "faults", "action.faults", self._faults, in_footer=False),
            Action("V", "saveview", "action.saveview", self._save_view, in_footer=False),
            Action("o", "sort", "action.sort", self._next_sort, in_footer=False),
            Action("O", "reverse", "action.reverse", self._reverse, in_footer=False),
            Action("C", "columns", "action.columns", self._choose_columns, in_footer=False),
            Action("w", "wide", "action.wide", self._wide, in_footer=False),
            Action("space", "mark", "action.mark", self.hai_mark, in_footer=False),
            Action("ctrl+a", "markall", "action.markall", self._mark_all, in_footer=False),
            Action("=", "diff", "action.diff", self._diff, in_footer=False),
            Action("c", "copy", "action.copy", self._copy, in_footer=False),
            Action("E", "export", "action.export", self._export, in_footer=False),
        ]

    def opened(self) -> None:
        """Show what there is."""
        self._sort = _sort_of(self.hai.preferences.text("sort", "id-"))
        self.sort_again()
        self.apply_filter(self._initial_filter)
        self.set_interval(USE_SECONDS, self.refresh_usage)
        self.set_interval(_TICK_SECONDS, self.tick)
        self.call_after_refresh(self.refresh_usage)

    # Filter and views.

    def _ask_filter(self) -> None:
        before = self._filter.source
        question = Question(
            text("filter.label"),
            self._filtered,
            value=before,
            placeholder=text("filter.placeholder"),
            changed=lambda line: self.apply_filter(line, older=False),
            wrong=lambda: bool(self._error),
            cancelled=lambda: self.apply_filter(before),
            history=self.hai.preferences.strings("filters"),
        )
        self.ask_line(question)

    def _filtered(self, line: str) -> None:
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

    def _mine(self) -> None:
        self._toggle("user:me")

    def _faults(self) -> None:
        self._toggle(FAULTS)

    def _alike(self) -> None:
        """A sweep has a tag in common."""
        tasks = self.chosen_tasks()
        if tasks and tasks[0].tags:
            self._toggle(" ".join(f"tag:{tag}" for tag in tasks[0].tags))
        else:
            self.hai.say(text("alike.none"), warning=True)

    def _views(self) -> Awaitable[None]:
        stored = {name: str(line) for name, line in self.hai.preferences.table("views").items()}
        names = {name: text(f"view.{name}") for name in VIEWS} | {name: name for name in stored}
        lines = VIEWS | stored
        choices = [
            Choice(name, str(i) if i < 10 else "", f"{content:<26} {lines[name]}")
            for i, (name, content) in enumerate(names.items(), start=1)
        ]
        return self._viewed(self.choose(text("view.title"), choices), lines)

    async def _viewed(self, asked: Awaitable[str], lines: Mapping[str, str]) -> None:
        if name := await asked:
            self.apply_filter(lines[name])

    def _save_view(self) -> None:
        self.ask_line(Question(text("view.label"), self._view_named))

    def _view_named(self, name: str) -> None:
        if name.strip():
            views = {**self.hai.preferences.table("views"), name.strip(): self._filter.source}
            self.hai.preferences.put("views", views)
            self.hai.say(text("view.saved", name=name.strip()))

    # Order and columns.

    def on_virtual_table_header_clicked(self, event: VirtualTable.HeaderClicked) -> None:
        """Sort by it; again: turn it round."""
        by = {column.key for column in self.table.columns if column.sort}
        if event.key in by:
            self._order(event.key, not self._sort[1] if self._sort[0] == event.key else False)

    def _order(self, key: str, reverse: bool) -> None:
        self._sort = (key, reverse)
        self.hai.preferences.put("sort", f"{key}{'-' if reverse else '+'}")
        self.sort_again()

    def _next_sort(self) -> None:
        keys = [column.key for column in self.table.columns if column.sort]
        position = keys.index(self._sort[0]) if self._sort[0] in keys else -1
        key = keys[(position + 1) % len(keys)]
        self._order(key, key == "id")

    def _reverse(self) -> None:
        self._order(self._sort[0], not self._sort[1])

    def _choose_columns(self) -> None:
        everything = columns(self.hai.waiting)
        visible_keys = [column.key for column in self.table.columns]
        self.hai.push_screen(ColumnDialog(everything, visible_keys), self._columns_chosen)

    def _columns_chosen(self, keys: list[str] | None) -> None:
        if keys:
            self.hai.preferences.put("columns", keys)
            self.table.set_columns(self._columns())
            self.call_after_refresh(self.refresh_usage)

    def _wide(self) -> None:
        self.table.all_columns = not self.table.all_columns
        self.table.set_columns(self._columns())

    # One task, or several.

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        """Enter or a double click."""
        self.hai.goto(f"task {event.id}")

    def hai_mark(self) -> None:
        """As the table's own key."""
        self.table.action_mark()

    def _mark_all(self) -> None:
        self.table.mark_all()

    def _with_cursor(self, line: str) -> None:
        id = self.table.cursor_id
        if id is None:
            self.hai.say(text("none.chosen"), warning=True)
        else:
            self.hai.goto(line.format(id=id))

    def _open(self) -> None:
        self._with_cursor("task {id}")

    def _logs(self) -> None:
        self._with_cursor("logs {id}")

    def _yaml(self) -> None:
        self._with_cursor("task {id} spec")

    def _again(self) -> None:
        self._with_cursor("submit {id}")

    def _submit(self) -> None:
        self.hai.goto("submit")

    def _copy(self) -> None:
        content = " ".join(map(str, self.chosen_ids()))
        if content:
            self.hai.copy_to_clipboard(content)
            self.hai.say(text("said.copied", what=content))

    def _diff(self) -> None:
        ids = self.chosen_ids()
        if len(ids) != 2:
            self.hai.say(text("diff.need"), warning=True)
            return
        self.hai.goto(f"diff {min(ids)} {max(ids)}")

    async def _export(self) -> None:
        """What is shown, as a spreadsheet takes it."""
        path = Path(f"hai-tasks-{int(self.hai.now())}.csv")

        async def write() -> str:
            write_csv(path, self.table.columns, map(self._row, self.table.ids), self.hai.now())
            return text("export.done", count=len(self.table.ids), path=path)

        await self.save(path, write)


def _sort_of(stored_sort: str) -> tuple[str, bool]:
    return stored_sort.rstrip("+-") or "id", stored_sort.endswith("-")

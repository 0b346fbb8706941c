"""All tasks, live: filter, views, order, marks, and what can be done to one or to many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widget import Widget

from hai.client.errors import HaiError
from hai_tui.actions import Action
from hai_tui.cli.table import printable
from hai_tui.feed.shown import Shown
from hai_tui.filter import Filter, FilterError, parse
from hai_tui.i18n import text
from hai_tui.screens.column_choice import ColumnScreen, chosen
from hai_tui.screens.steering import TaskPageBase
from hai_tui.screens.task_columns import columns
from hai_tui.screens.task_views import FAULTS, VIEWS
from hai_tui.theme import tones
from hai_tui.widgets.choose import Choice
from hai_tui.widgets.export import write_csv
from hai_tui.widgets.prompt import Question
from hai_tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai_tui.feed.facts import Facts

_OLDER = 1000
"""Older tasks that a filter asks the server for, at most."""
_FLASH_SECONDS = 0.8
_FLASH_MOST = 20
_REST_SECONDS = 0.1


class TasksPage(TaskPageBase):
    """The list that people keep open all day."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self._filter = Filter()
        self._begin_with = " ".join(words)
        self._error = ""
        self._asking = False
        self._restless = False
        self._versions: dict[int, int] = {}
        self._sort = ("id", True)
        self._shown: Shown[Facts] = Shown()

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
        return chosen(columns(self.hai.waiting), self.hai.state.words("columns"))

    def _row(self, id: int) -> Task | None:
        model = self.hai.session.tasks
        return model.get(id) if model else None

    def actions(self) -> Sequence[Action]:
        """What can be done here, the most important first."""
        return [
            Action("enter,d", "open", "action.open", self._open),
            Action("l", "logs", "action.logs", self._logs),
            Action("/", "filter", "action.filter", self._ask_filter),
            Action("v", "views", "action.views", self._views),
            Action("n", "submit", "action.submit", self._submit, writes=True),
            *self.steering(),
            Action("y", "yaml", "action.yaml", self._yaml, shown=False),
            Action("escape", "clear", "action.clear", self._clear, shown=False),
            Action("A", "again", "action.again", self._again, writes=True, shown=False),
            Action("m", "mine", "action.mine", self._mine, shown=False),
            Action("ctrl+z", "faults", "action.faults", self._faults, shown=False),
            Action("V", "saveview", "action.saveview", self._save_view, shown=False),
            Action("o", "sort", "action.sort", self._next_sort, shown=False),
            Action("O", "reverse", "action.reverse", self._reverse, shown=False),
            Action("C", "columns", "action.columns", self._choose_columns, shown=False),
            Action("w", "wide", "action.wide", self._wide, shown=False),
            Action("space", "mark", "action.mark", self.hai_mark, shown=False),
            Action("ctrl+a", "markall", "action.markall", self._mark_all, shown=False),
            Action("=", "diff", "action.diff", self._diff, shown=False),
            Action("c", "copy", "action.copy", self._copy, shown=False),
            Action("E", "export", "action.export", self._export, shown=False),
        ]

    # What is shown.

    def opened(self) -> None:
        """Show what there is."""
        self._sort = _sort_of(self.hai.state.text("sort", "id-"))
        self.sort_again()
        self.apply_filter(self._begin_with)

    def tasks_changed(self, ids: set[int]) -> None:
        """Look again at these; at all of them when nothing was shown yet."""
        model = self.hai.session.tasks
        if model is None or not self.query(VirtualTable):
            return
        self._show(self._shown.look_at(model.facts, ids))
        self._flash(ids)

    def _flash(self, ids: set[int]) -> None:
        """What changed under the reader's eyes stands out for a moment, unless most of the table does."""
        table, new = self.table, {id: self._version(id) for id in ids}
        seen = {id for id, version in new.items() if self._versions.get(id, version) != version}
        self._versions |= new
        table.changed(ids)
        if seen and len(seen) <= _FLASH_MOST:
            table.fresh |= seen
            self.set_timer(_FLASH_SECONDS, lambda: self._calm(seen))

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
        facts = model.facts if model else {}
        self._show(self._shown.sort_by(facts, lambda of: key(of.task), self._sort[1]))

    def _match_again(self, *, narrower: bool) -> None:
        """The filter is another."""
        model, now, among = self.hai.session.tasks, self.hai.now, self._filter.among
        facts = model.facts if model else {}
        self._show(self._shown.choose(facts, lambda all: among(all, now()), narrower=narrower))

    def write_status(self) -> None:
        """Counts, filter, marks; or what is wrong with the filter."""
        model, table = self.hai.session.tasks, self.table
        styles = tones(self.hai.current_theme)
        if self._error:
            self.status(Text(f"✗ {self._error}", styles["bad"]))
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
        elif told := self._told_of_cursor():
            line.append(" · ").append(told, styles["quiet"])
        self.status(line)

    def _told_of_cursor(self) -> str:
        """Why the task under the cursor is as it is, where no column says so."""
        table = self.table
        task = None if table.shows("why") else self._row(table.cursor_id)
        if task is None:
            return ""
        waits = self.hai.waiting(task)
        told = waits.message or waits.reason or task.reason or task.run.reason
        return f"{task.id}: {printable(told)}" if told else ""

    # Filter and views.

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
        self._match_again(narrower=self._filter.narrows(before))
        if older and self._filter.source:
            self._ask_older()

    def _ask_older(self) -> None:
        self._asking = True
        self.write_status()
        self.run_worker(self._older(self._filter), group="older", exclusive=True)

    async def _older(self, wanted: Filter) -> None:
        """Tasks beyond what is loaded; answers to a filter that has gone are dropped with the worker."""
        session = self.hai.session
        try:
            client = await session.client()
            page = await client.tasks.list(filter=wanted.server, page_size=_OLDER)
            session.merge(page.tasks)
        except HaiError:
            return  # what is loaded is shown; the banner tells of a server that is away
        finally:
            self._asking = False
            if self.query(VirtualTable):  # else the page was closed meanwhile
                self.write_status()

    def _ask_filter(self) -> None:
        before = self._filter.source
        question = Question(
            text("filter.label"),
            self._filtered,
            value=before,
            placeholder=text("filter.placeholder"),
            changed=lambda line: self.apply_filter(line, older=False),
            cancelled=lambda: self.apply_filter(before),
            history=self.hai.state.words("filters"),
        )
        self.ask_line(question)

    def _filtered(self, line: str) -> None:
        self.apply_filter(line)
        if line.strip() and not self._error:
            earlier = [each for each in self.hai.state.words("filters") if each != line]
            self.hai.state.put("filters", [line, *earlier][:50])
        elif self._error:
            self.hai.say(self._error, warning=True)
            self._error = ""
            self.write_status()

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

    async def _views(self) -> None:
        stored = {name: str(line) for name, line in self.hai.state.table("views").items()}
        names = {name: text(f"view.{name}") for name in VIEWS} | {name: name for name in stored}
        lines = VIEWS | stored
        choices = [
            Choice(name, str(i) if i < 10 else "", f"{told:<26} {lines[name]}")
            for i, (name, told) in enumerate(names.items(), start=1)
        ]
        if name := await self.choose(text("view.title"), choices):
            self.apply_filter(lines[name])

    def _save_view(self) -> None:
        self.ask_line(Question(text("view.label"), self._view_named))

    def _view_named(self, name: str) -> None:
        if name.strip():
            views = {**self.hai.state.table("views"), name.strip(): self._filter.source}
            self.hai.state.put("views", views)
            self.hai.say(text("view.saved", name=name.strip()))

    # Order and columns.

    def on_virtual_table_header_clicked(self, event: VirtualTable.HeaderClicked) -> None:
        """Sort by it; again: turn it round."""
        by = {column.key for column in self.table.columns if column.sort}
        if event.key in by:
            self._order(event.key, not self._sort[1] if self._sort[0] == event.key else False)

    def _order(self, key: str, reverse: bool) -> None:
        self._sort = (key, reverse)
        self.hai.state.put("sort", f"{key}{'-' if reverse else '+'}")
        self.sort_again()

    def _next_sort(self) -> None:
        keys = [column.key for column in self.table.columns if column.sort]
        place = keys.index(self._sort[0]) if self._sort[0] in keys else -1
        key = keys[(place + 1) % len(keys)]
        self._order(key, key == "id")

    def _reverse(self) -> None:
        self._order(self._sort[0], not self._sort[1])

    def _choose_columns(self) -> None:
        everything = columns(self.hai.waiting)
        shown = [column.key for column in self.table.columns]
        self.hai.push_screen(ColumnScreen(everything, shown), self._columns_chosen)

    def _columns_chosen(self, keys: list[str] | None) -> None:
        if keys:
            self.hai.state.put("columns", keys)
            self.table.set_columns(self._columns())

    def _wide(self) -> None:
        self.table.all_columns = not self.table.all_columns
        self.table.set_columns(self._columns())

    # One task, or several.

    def chosen_ids(self) -> list[int]:
        """The marked ones, else the one under the cursor."""
        return self.table.chosen

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        """Enter or a double click."""
        self.hai.goto(f"task {event.id}")

    def on_virtual_table_marked(self) -> None:
        """The status line counts them."""
        self.write_status()

    def on_virtual_table_moved(self) -> None:
        """Other actions may be allowed on another task; it is enough to say so when the cursor rests."""
        if not self._restless:
            self._restless = True
            self.set_timer(_REST_SECONDS, self._rests)

    def _rests(self) -> None:
        self._restless = False
        self.write_status()
        self.reframe_keys()

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
        told = " ".join(map(str, self.chosen_ids()))
        if told:
            self.hai.copy_to_clipboard(told)
            self.hai.say(text("said.copied", what=told))

    def _diff(self) -> None:
        ids = self.chosen_ids()
        if len(ids) != 2:
            self.hai.say(text("diff.need"), warning=True)
            return
        self.hai.goto(f"diff {min(ids)} {max(ids)}")

    def _export(self) -> None:
        """What is shown, as a spreadsheet takes it."""
        path = Path(f"hai-tasks-{int(self.hai.now())}.csv")
        write_csv(path, self.table.columns, map(self._row, self.table.ids), self.hai.now())
        self.hai.say(text("export.done", count=len(self.table.ids), path=path))


def _sort_of(word: str) -> tuple[str, bool]:
    return word.rstrip("+-") or "id", word.endswith("-")

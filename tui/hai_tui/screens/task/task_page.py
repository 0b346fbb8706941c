"""One task: overview, ranks, runs, timeline, why it waits, what it uses, its spec; everything follows the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.syntax import Syntax
from rich.text import Text
from textual.containers import Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from hai.client.errors import HaiError, NotFound
from hai.client.tasks.references import parse_id
from hai.client.tasks.silent_agents import silent_agents_of_run
from hai_tui.actions import Action
from hai_tui.i18n import text
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.screens.task import tables as task_tables
from hai_tui.screens.task.shell import open_shell, why_no_shell
from hai_tui.screens.task.task_detail import TaskDetail
from hai_tui.screens.task.usage_tab import UsageTab
from hai_tui.screens.tasks.task_actions import TaskActionsPage
from hai_tui.style.theme import tones
from hai_tui.tasks import descriptions
from hai_tui.widgets.plain import Static
from hai_tui.widgets.table.virtual_table import VirtualTable
from hai_tui.widgets.tabs import TabLine

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

TABS = ("overview", "ranks", "runs", "timeline", "why", "usage", "spec")
_TICK_SECONDS = 1.0
_RELOAD_SECONDS = 0.5
"""Between two looks at a task that changes all the time."""


class TaskPage(TaskActionsPage):
    """`:task 12`, `:task train`, `:task 12 why`."""

    DEFAULT_CSS = """
    TaskPage #summary { height: auto; max-height: 4; padding: 0 1; background: $background; }
    TaskPage ContentSwitcher { height: 1fr; }
    TaskPage VerticalScroll { padding: 1 2; height: 1fr; }
    TaskPage VerticalScroll Static { width: 1fr; height: auto; }
    """

    def __init__(self, ref: str, tab: str = "overview", *_: str) -> None:
        super().__init__()
        self._ref, self._tab = ref, tab if tab in TABS else "overview"
        self._task_id = parse_id(ref)
        self._changed_event = asyncio.Event()
        self.detail = TaskDetail()
        self._dependency_facts: dict[str, str] = {}

    def content(self) -> Widget:
        """Summary, tabs, and what the chosen tab shows."""
        now = self.hai.now
        texts = (
            VerticalScroll(Static(id=f"{name}-text"), id=name)
            for name in ("overview", "why", "spec")
        )
        tables = (
            VirtualTable(
                task_tables.ranks(), self.detail.rank, now, id="ranks", empty=text("ranks.empty")
            ),
            VirtualTable(
                task_tables.runs(), self.detail.run, now, id="runs", empty=text("ranks.empty")
            ),
            VirtualTable(task_tables.events(), self.detail.event, now, id="timeline"),
        )
        names = [(name, text(f"tab.{name}")) for name in TABS]
        usage = UsageTab(self.hai, lambda: self.detail.task, id="usage")
        switcher = ContentSwitcher(*texts, *tables, usage, initial=self._tab)
        return Vertical(Static(id="summary"), TabLine(names, self._tab, self.open_tab), switcher)

    def title_text(self) -> str:
        """Its number and name."""
        name = f" {self.detail.task.name}" if self.detail.task else ""
        return f"{self.entry.title} {self._task_id or self._ref}{name}"

    def actions(self) -> Sequence[Action]:
        """What can be done here."""
        return [
            Action("l", "logs", "action.logs", self._logs),
            Action("tab,right", "nexttab", "action.nexttab", lambda: self._step(1)),
            Action(
                "shift+tab,left",
                "prevtab",
                "action.prevtab",
                lambda: self._step(-1),
                in_footer=False,
            ),
            *self.task_actions(),
            *self.dependency_actions(),
            Action("s", "shell", "action.shell", self._shell, writes=True, why_not=self._no_shell),
            Action("S", "services", "action.services", self._services, in_footer=False),
            self._turn("]", "next", 1),
            self._turn("[", "before", -1),
            Action("y", "yaml", "action.yaml", lambda: self.open_tab("spec"), in_footer=False),
            Action("A", "again", "action.again", self._again, writes=True, in_footer=False),
            Action("c", "copy", "action.copy", self._copy, in_footer=False),
            Action("E", "save", "action.save", self._save, in_footer=False),
        ]

    def _turn(self, key: str, name: str, step: int) -> Action:
        def turn() -> None:
            self.open_tab("usage")
            self._usage.turn_page(step)

        return Action(
            key,
            name,
            f"usage.{name}",
            turn,
            in_footer=False,
            why_not=lambda: self._usage.why_no_other_page(),
        )

    @property
    def _usage(self) -> UsageTab:
        return self.query_one(UsageTab)

    def accepts_arguments(self, arguments: Sequence[str]) -> bool:
        """The same task, with another tab if one is named."""
        ref, *tab = arguments
        if ref != self._ref:
            return False
        if tab and tab[0] in TABS:
            self.open_tab(tab[0])
        return True

    def chosen_ids(self) -> list[int]:
        """This one."""
        return [self._task_id] if self._task_id else []

    def with_spec(self) -> list[Task]:
        """As the server was asked for it."""
        return [self.detail.task] if self.detail.task else self.chosen_tasks()

    # Tabs.

    def open_tab(self, name: str) -> None:
        """Show a tab."""
        self._tab = name
        self.query_one(ContentSwitcher).current = name
        self.query_one(TabLine).show(name)
        self.focus_content()
        self._tick()

    def focus_content(self) -> None:
        """The tab that is shown has the keyboard."""
        self.set_focus(self.query_one(f"#{self._tab}"))

    def _step(self, step: int) -> None:
        self.open_tab(TABS[(TABS.index(self._tab) + step) % len(TABS)])

    # What the server says.

    def opened(self) -> None:
        """Ask, and ask again whenever the task changes."""
        self.query_one("#summary", Static).update(text("task.loading", id=self._ref))
        run_in_background(self, self._follow_task, group="look")
        self.set_interval(_TICK_SECONDS, self._tick)

    def tasks_changed(self, ids: set[int]) -> None:
        """Look again if it concerns this task."""
        if self._task_id in ids or not ids:
            self._changed_event.set()

    async def _follow_task(self) -> None:
        session = self.hai.session
        client = await session.client()
        if not self._task_id and not await self._resolved(client):
            return
        while True:
            self._changed_event.clear()
            try:
                await session.call_with_retry(lambda: self.detail.load(client, self._task_id))
            except NotFound:
                self._show_not_found()
                return
            except HaiError as error:
                self.hai.fail(error)
            self._draw()
            await asyncio.sleep(_RELOAD_SECONDS)
            await self._changed_event.wait()

    async def _resolved(self, client: Client) -> bool:
        try:
            self._task_id = await self.hai.session.call_with_retry(
                partial(client.tasks.resolve, self._ref)
            )
        except HaiError as error:
            self._show_not_found()
            self.hai.fail(error)
        return bool(self._task_id)

    def _show_not_found(self) -> None:
        if not self.is_ready:
            return
        self._put("summary", text("task.none", id=self._ref))

    # What is drawn.

    def _draw(self) -> None:
        if not self.is_ready:
            return
        detail = self.detail
        assert detail.task is not None
        self._tick()
        self._draw_overview()
        self._draw_why()
        self._put("spec-text", self._spec())
        self._table("ranks").show([rank.index for rank in detail.ranks])
        self._table("runs").show([run.number for run in reversed(detail.runs)])
        self._table("timeline").show([event.sequence for event in reversed(detail.events)])
        self._usage.begin()
        self.refresh_frame()

    def _draw_overview(self) -> None:
        from hai_tui.screens.task import text as task_text

        detail, styles, now = self.detail, tones(self.hai.current_theme), self.hai.now()
        assert detail.task is not None
        facts = [*task_text.facts(detail.task, now), *self._dependency_facts.items()]
        cards = task_text.overview(detail.task, detail.waiting, detail.runs, facts, now, styles)
        self._put("overview-text", cards)

    def _draw_why(self) -> None:
        from hai_tui.screens.task import text as task_text

        detail, styles, now = self.detail, tones(self.hai.current_theme), self.hai.now()
        assert detail.task is not None
        self._put("why-text", task_text.why(detail.task, detail.why, now, styles))

    def _update_dependencies(self) -> None:
        """Who waits for this task may come and go without any change of it."""
        model = self.hai.session.tasks
        if model is None or self.detail.task is None:
            return
        before, behind = self.detail.task.awaited, self._dependents([self.detail.task])
        pairs = {"before": before, "behind": behind}
        dependency_actions = {
            key: descriptions.describe_tasks(ids, model.tasks) for key, ids in pairs.items()
        }
        if dependency_actions != self._dependency_facts:
            self._dependency_facts = dependency_actions
            self._draw_overview()

    def _tick(self) -> None:
        """Time goes on also where nothing changes."""
        from hai_tui.screens.task import text as task_text

        detail, now = self.detail, self.hai.now()
        if detail.task is None or not self.is_ready:
            return
        styles = tones(self.hai.current_theme)
        self._put("summary", task_text.summary(detail.task, detail.waiting, now, styles))
        self.status(self._cursor_summary() or task_text.status_line(detail.task, now))
        self._update_dependencies()
        if silent_agents_of_run(detail.task.run) is not None:  # for how long, is counted
            self._draw_overview()
            self._draw_why()

    def _put(self, id: str, renderable: Any) -> None:
        self.query_one(f"#{id}", Static).update(renderable)

    def _table(self, id: str) -> VirtualTable:
        return self.query_one(f"#{id}", VirtualTable)

    def _yaml(self) -> str:
        from hai.client.taskfile.spec import to_yaml

        return to_yaml(self.detail.task.spec) if self.detail.task else ""

    def _spec(self) -> Syntax | Text:
        dark = self.hai.current_theme.dark
        if self.hai.no_color:
            return Text(self._yaml())
        theme = "ansi_dark" if dark else "ansi_light"
        return Syntax(self._yaml(), "yaml", theme=theme, background_color="default", word_wrap=True)

    def _cursor_summary(self) -> str:
        """What the row under the cursor may have no room for."""
        if self._tab == "timeline":
            return self.detail.event_summary(self._table("timeline").cursor_id or 0)
        return (
            self.detail.run_summary(self._table("runs").cursor_id or 0)
            if self._tab == "runs"
            else ""
        )

    def on_virtual_table_moved(self) -> None:
        """Another row is under the cursor."""
        self._tick()

    # Actions.

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        """A rank opens its log."""
        if event.table.id == "ranks":
            self.hai.goto(f"logs {self._task_id} {event.id}")

    def _logs(self) -> None:
        """Of the rank under the cursor on the ranks' tab, of the one that failed first, else of all."""
        table = self._table("ranks")
        if self._tab == "ranks" and table.cursor_id is not None:
            self.hai.goto(f"logs {self._task_id} {table.cursor_id}")
        elif self._task_id:
            self.hai.goto(f"logs {self._task_id}")

    def _no_shell(self) -> str:
        return why_no_shell(self.hai, self.detail.task)

    def _shell(self) -> None:
        """In the rank under the cursor, else in the first one."""
        cursor = self._table("ranks").cursor_id if self._tab == "ranks" else None
        open_shell(self.hai, self._task_id, cursor or 0)

    def _services(self) -> None:
        self.hai.goto(f"services {self._task_id}")

    def _again(self) -> None:
        self.hai.goto(f"submit {self._task_id}")

    def _copy(self) -> None:
        self.hai.copy_to_clipboard(str(self._task_id))
        self.hai.say(text("said.copied", what=self._task_id))

    async def _save(self) -> None:
        path = Path(f"task-{self._task_id}.yaml")

        async def write() -> str:
            await asyncio.to_thread(path.write_text, self._yaml(), "utf-8")
            return text("said.saved", path=path)

        await self.save(path, write)

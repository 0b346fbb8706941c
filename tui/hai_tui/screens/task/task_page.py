"""The page of one task: overview, ranks, runs, timeline, explanation, usage and spec, all updated live."""

from __future__ import annotations

import asyncio
import subprocess
import sys
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
from hai_tui.feed.task_row import cached_status
from hai_tui.i18n import text
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.screens.task import tables as task_tables
from hai_tui.screens.task.task_detail import TaskDetail
from hai_tui.screens.task.usage_tab import UsageTab
from hai_tui.screens.tasks.task_actions import TaskActionsPage
from hai_tui.session import connect
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
"""The least time between two requests for a task, which may change all the time."""


class TaskPage(TaskActionsPage):
    """The page is opened by `:task 12`, `:task train` or `:task 12 why`."""

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
        now = self.hai.now
        texts = (
            VerticalScroll(Static(id=f"{name}-text"), id=name)
            for name in ("overview", "why", "spec")
        )
        tables = (
            VirtualTable(
                task_tables.rank_columns(),
                self.detail.rank,
                now,
                id="ranks",
                empty=text("ranks.empty"),
            ),
            VirtualTable(
                task_tables.run_columns(),
                self.detail.run,
                now,
                id="runs",
                empty=text("ranks.empty"),
            ),
            VirtualTable(task_tables.event_columns(), self.detail.event, now, id="timeline"),
        )
        names = [(name, text(f"tab.{name}")) for name in TABS]
        usage = UsageTab(self.hai, lambda: self.detail.task, id="usage")
        switcher = ContentSwitcher(*texts, *tables, usage, initial=self._tab)
        return Vertical(Static(id="summary"), TabLine(names, self._tab, self.open_tab), switcher)

    def title_text(self) -> str:
        name = f" {self.detail.task.name}" if self.detail.task else ""
        return f"{self.entry.title} {self._task_id or self._ref}{name}"

    def actions(self) -> Sequence[Action]:
        return [
            Action("l", "logs", "action.logs", self._open_logs),
            Action("tab,right", "nexttab", "action.nexttab", lambda: self._switch_tab(1)),
            Action(
                "shift+tab,left",
                "prevtab",
                "action.prevtab",
                lambda: self._switch_tab(-1),
                in_footer=False,
            ),
            *self.task_actions(),
            *self.dependency_actions(),
            Action(
                "s",
                "shell",
                "action.shell",
                self._open_shell,
                writes=True,
                why_not=self._why_no_shell,
            ),
            Action("S", "services", "action.services", self._open_services, in_footer=False),
            self._turn_page_action("]", "next", 1),
            self._turn_page_action("[", "before", -1),
            Action("y", "yaml", "action.yaml", lambda: self.open_tab("spec"), in_footer=False),
            Action("A", "again", "action.again", self._submit_again, writes=True, in_footer=False),
            Action("c", "copy", "action.copy", self._copy, in_footer=False),
            Action("E", "save", "action.save", self._save, in_footer=False),
        ]

    def _turn_page_action(self, key: str, name: str, step: int) -> Action:
        def turn() -> None:
            self.open_tab("usage")
            self._usage_tab.turn_page(step)

        return Action(
            key,
            name,
            f"usage.{name}",
            turn,
            in_footer=False,
            why_not=lambda: self._usage_tab.why_no_other_page(),
        )

    @property
    def _usage_tab(self) -> UsageTab:
        return self.query_one(UsageTab)

    def accepts_arguments(self, arguments: Sequence[str]) -> bool:
        """Return True for the same task; open the tab that is named after it."""
        ref, *tab = arguments
        if ref != self._ref:
            return False
        if tab and tab[0] in TABS:
            self.open_tab(tab[0])
        return True

    def chosen_ids(self) -> list[int]:
        return [self._task_id] if self._task_id else []

    def chosen_tasks_with_spec(self) -> list[Task]:
        """Return the task as the page loaded it."""
        return [self.detail.task] if self.detail.task else self.chosen_tasks()

    # Tabs.

    def open_tab(self, name: str) -> None:
        self._tab = name
        self.query_one(ContentSwitcher).current = name
        self.query_one(TabLine).set_current(name)
        self.focus_content()
        self._tick()

    def focus_content(self) -> None:
        """Give the keyboard to the current tab."""
        self.set_focus(self.query_one(f"#{self._tab}"))

    def _switch_tab(self, step: int) -> None:
        self.open_tab(TABS[(TABS.index(self._tab) + step) % len(TABS)])

    # Loading.

    def opened(self) -> None:
        """Load the task, and load it again whenever it changes."""
        self.query_one("#summary", Static).update(text("task.loading", id=self._ref))
        run_in_background(self, self._follow_task, group="look")
        self.set_interval(_TICK_SECONDS, self._tick)

    def tasks_changed(self, ids: set[int]) -> None:
        """Load the task again if it has changed."""
        if self._task_id in ids or not ids:
            self._changed_event.set()

    async def _follow_task(self) -> None:
        session = self.hai.session
        client = await session.client()
        if not self._task_id and not await self._resolve(client):
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

    async def _resolve(self, client: Client) -> bool:
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

    # Drawing.

    def _draw(self) -> None:
        if not self.is_ready:
            return
        detail = self.detail
        assert detail.task is not None
        self._tick()
        self._draw_overview()
        self._draw_explanation()
        self._put("spec-text", self._spec_text())
        self._table("ranks").show([rank.index for rank in detail.ranks])
        self._table("runs").show([run.number for run in reversed(detail.runs)])
        self._table("timeline").show([event.sequence for event in reversed(detail.events)])
        self._usage_tab.load_first()
        self.refresh_frame()

    def _draw_overview(self) -> None:
        from hai_tui.screens.task import text as task_text

        detail, styles, now = self.detail, tones(self.hai.current_theme), self.hai.now()
        assert detail.task is not None
        facts = [*task_text.task_facts(detail.task, now), *self._dependency_facts.items()]
        cards = task_text.overview(detail.task, detail.waiting, detail.runs, facts, now, styles)
        self._put("overview-text", cards)

    def _draw_explanation(self) -> None:
        from hai_tui.screens.task import text as task_text

        detail, styles, now = self.detail, tones(self.hai.current_theme), self.hai.now()
        assert detail.task is not None
        self._put("why-text", task_text.explanation(detail.task, detail.explanation, now, styles))

    def _update_dependencies(self) -> None:
        """Draw the dependencies again, which may change without a change of this task."""
        model = self.hai.session.tasks
        if model is None or self.detail.task is None:
            return
        task = self.detail.task
        ids_by_fact = {"before": task.awaited, "behind": self._dependents([task])}
        facts = {
            key: descriptions.describe_tasks(ids, model.tasks) for key, ids in ids_by_fact.items()
        }
        if facts != self._dependency_facts:
            self._dependency_facts = facts
            self._draw_overview()

    def _tick(self) -> None:
        """Draw the parts that change with time, such as ages."""
        from hai_tui.screens.task import text as task_text

        detail, now = self.detail, self.hai.now()
        if detail.task is None or not self.is_ready:
            return
        styles = tones(self.hai.current_theme)
        self._put("summary", task_text.summary(detail.task, detail.waiting, now, styles))
        self.status(self._cursor_summary() or task_text.status_line(detail.task, now))
        self._update_dependencies()
        if silent_agents_of_run(detail.task.run) is not None:  # the time of the silence grows
            self._draw_overview()
            self._draw_explanation()

    def _put(self, id: str, renderable: Any) -> None:
        self.query_one(f"#{id}", Static).update(renderable)

    def _table(self, id: str) -> VirtualTable:
        return self.query_one(f"#{id}", VirtualTable)

    def _yaml(self) -> str:
        from hai.client.taskfile.spec import to_yaml

        return to_yaml(self.detail.task.spec) if self.detail.task else ""

    def _spec_text(self) -> Syntax | Text:
        if self.hai.no_color:
            return Text(self._yaml())
        theme = "ansi_dark" if self.hai.current_theme.dark else "ansi_light"
        return Syntax(self._yaml(), "yaml", theme=theme, background_color="default", word_wrap=True)

    def _cursor_summary(self) -> str:
        """Return the full text of the row under the cursor, for which the row may have no room."""
        if self._tab == "timeline":
            return self.detail.event_summary(self._table("timeline").cursor_id or 0)
        if self._tab == "runs":
            return self.detail.run_summary(self._table("runs").cursor_id or 0)
        return ""

    def on_virtual_table_moved(self) -> None:
        self._tick()

    # Actions.

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        """Open the log of a rank."""
        if event.table.id == "ranks":
            self.hai.goto(f"logs {self._task_id} {event.id}")

    def _open_logs(self) -> None:
        """Open the log of the rank under the cursor, else the logs of all ranks."""
        table = self._table("ranks")
        if self._tab == "ranks" and table.cursor_id is not None:
            self.hai.goto(f"logs {self._task_id} {table.cursor_id}")
        elif self._task_id:
            self.hai.goto(f"logs {self._task_id}")

    def _why_no_shell(self) -> str:
        if self.hai.options.connect is not connect:
            return text("shell.made_up")
        task = self.detail.task
        is_running = task is not None and cached_status(task) == "RUNNING"
        return "" if is_running else text("shell.not_running")

    def _open_shell(self) -> None:
        """Give the screen to `hai shell` in the rank under the cursor, else in the first one, until the shell ends."""
        cursor = self._table("ranks").cursor_id if self._tab == "ranks" else None
        task, rank, name = self._task_id, cursor or 0, self.hai.session.profile.name
        profile = ["--profile", name] if name else []
        command = [sys.executable, "-m", "hai_tui.cli.main", "shell", *profile]
        with self.hai.suspend():
            print(text("shell.open", task=task, rank=rank), flush=True)
            code = subprocess.run([*command, str(task), "-r", str(rank)], check=False).returncode
        self.hai.say(text("shell.ended", code=code), warning=bool(code))

    def _open_services(self) -> None:
        self.hai.goto(f"services {self._task_id}")

    def _submit_again(self) -> None:
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

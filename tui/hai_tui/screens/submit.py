"""Submit a task: form and yaml, both alive; the server says while one types what is wrong and when it would start.

`:submit` begins with the task that was submitted last, `:submit 12` with task 12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from hai.client.errors import HaiError, Invalid, Unreachable, Violation
from hai.client.fields import PRIORITIES
from hai_tui.actions import Action
from hai_tui.cli.dry_run import sentences
from hai_tui.cli.start_view import sentences as start_sentences
from hai_tui.feed.link import LinkState
from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.submit import draft as drafts
from hai_tui.submit.draft import Draft
from hai_tui.theme import tones
from hai_tui.widgets.form_line import FormLine
from hai_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task
    from hai.v1.task_service_pb2 import DryRunTaskResponse
    from hai.v1.task_spec_pb2 import TaskSpec

PAUSE_SECONDS = 0.4
"""How long nobody types before the server is asked."""

_SIGNS = {
    "STARTS": ("✓", "good"),
    "PROMISED": ("◔", "busy"),
    "WAITS": ("○", "waits"),
    "NEVER": ("✗", "bad"),
}
_TYPES = ("training", "virtual", "jupyter", "validation", "background", "upgrade")


class SubmitPage(Page):
    """Both views beside one another where there is room, else one at a time."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - as Textual declares it
    DEFAULT_CSS = """
    SubmitPage #content { layout: vertical; }
    SubmitPage #views { layout: horizontal; height: 1fr; }
    SubmitPage #form { width: 1fr; height: 1fr; padding: 0 1; }
    SubmitPage TextArea, SubmitPage TextArea:focus { width: 1fr; height: 1fr; border: none;
        border-left: solid $panel; padding: 0; }
    SubmitPage.-narrow #form { display: block; }
    SubmitPage.-narrow TextArea { display: none; }
    SubmitPage.-narrow.yaml #form { display: none; }
    SubmitPage.-narrow.yaml TextArea { display: block; }
    SubmitPage #verdict { height: auto; max-height: 9; padding: 0 1; background: $surface;
        border-top: solid $panel; }
    """

    def __init__(self, task: str = "") -> None:
        super().__init__()
        self._like = task
        self._draft = drafts.write(drafts.first(""))
        self._start = self._draft
        self._answer: DryRunTaskResponse | None = None
        self._broken: tuple[Violation, ...] = ()
        self._told = ""
        self._lines = {path: _line(path) for path in drafts.FIELDS}

    @property
    def area(self) -> TextArea:
        """The yaml."""
        return self.query_one(TextArea)

    def content(self) -> Widget:
        """The form, the yaml, and below them what the server says."""
        form = VerticalScroll(*self._lines.values(), id="form", can_focus=False)
        area = TextArea.code_editor(
            "", language="yaml", theme="css", show_line_numbers=True, tab_behavior="indent"
        )
        return Container(Container(form, area, id="views"), Static(id="verdict"))

    def focus_content(self) -> None:
        """The first line, or the yaml."""
        self.set_focus(self.area if self.has_class("yaml") else self._lines["name"].input)

    def actions(self) -> Sequence[Action]:
        """Keys that are not letters, as letters are typed here."""
        return (
            Action("ctrl+s", "send", "submit.send", self._send, writes=True, why_not=self._why_not),
            Action("f2", "yaml", "submit.yaml", self._toggle),
            Action("f3", "reset", "submit.reset", self._reset),
            Action("f4", "load", "submit.load", self._ask_load),
            Action("f5", "save", "submit.save", self._ask_save),
            Action("f1", "keys", "action.help", self.hai.show_help, shown=False),
        )

    def opened(self) -> None:
        """Begin with the last task, or the one that was named."""
        self.call_after_refresh(self._ready)  # the lines compose their inputs after the page

    def _ready(self) -> None:
        self._show_all(self._draft)
        self.fetch(self._begin, self._began)
        self.fetch(lambda client: client.nodes.groups(), self._offer_groups, group="groups")

    def link_changed(self, link: LinkState) -> None:
        """What could not be checked is checked when the server is back."""
        if link.live and self.is_mounted and self._answer is None:
            self._check_soon()

    # Where it begins.

    async def _begin(self, client: Client) -> TaskSpec | None:
        if self._like.isdecimal():
            return (await client.tasks.get(int(self._like))).spec
        found = await client.tasks.list(filter="user:me", page_size=1)
        return (await client.tasks.get(found.tasks[0].id)).spec if found.tasks else None

    def _began(self, spec: TaskSpec | None) -> None:
        if spec is not None and self._draft is self._start:  # nobody has typed meanwhile
            self._start = drafts.write(drafts.again(spec))
            self._show_all(self._start)
        self._check_soon()

    def _offer_groups(self, groups: Sequence[object]) -> None:
        names = [f"{group.name}" for group in groups]  # type: ignore[attr-defined]
        self._lines["resource.group"].offer(names)

    # Two views of one text.

    def on_input_changed(self, event: Input.Changed) -> None:
        """A line of the form."""
        line = next((x for x in self._lines.values() if x.input is event.input), None)
        if line is None:
            return
        self._draft = drafts.change(self._draft, line.key, event.value)
        if self._draft.spec is not None and not self._draft.violations:
            self._write_yaml(self._draft.text)
        self._edited()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """The yaml."""
        if event.text_area.text == self._draft.text:
            return
        self._draft = drafts.read(event.text_area.text)
        if self._draft.spec is not None:
            self._fill(self._draft.spec)
        self._edited()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: the next line."""
        event.stop()
        self.focus_next()

    def _show_all(self, draft: Draft) -> None:
        self._draft = draft
        self._write_yaml(draft.text)
        if draft.spec is not None:
            self._fill(draft.spec)
        self._edited()

    def _write_yaml(self, shown: str) -> None:
        with self.area.prevent(TextArea.Changed):
            self.area.load_text(shown)

    def _fill(self, spec: TaskSpec) -> None:
        begin = drafts.values(self._start.spec) if self._start.spec is not None else {}
        for path, value in drafts.values(spec).items():
            self._lines[path].show(value)
            self._lines[path].set_class(value != begin.get(path, ""), "edited")

    def _edited(self) -> None:
        self._answer, self._broken, self._told = None, self._draft.violations, ""
        if self._draft.spec is not None:
            begin = drafts.values(self._start.spec) if self._start.spec is not None else {}
            for path, line in self._lines.items():
                line.set_class(line.value != begin.get(path, ""), "edited")
        self._show_verdict()
        self._check_soon()

    # What the server says.

    def _check_soon(self) -> None:
        """A newer text cancels the question about an older one."""
        if self._draft.spec is not None and not self._draft.violations and self.is_mounted:
            check: Callable[[], Awaitable[None]] = self._check
            self.run_worker(check, group="check", exclusive=True)

    async def _check(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        asked = self._draft
        if asked.spec is None:
            return
        spec = asked.spec
        try:
            self._answer = await self.call(lambda client: client.tasks.dry_run(spec))
            self._broken = ()
        except Invalid as error:
            self._broken = error.violations or (Violation("", error.message),)
        except Unreachable:
            self._told = text("submit.unreachable")
        except HaiError as error:
            self._told = "\n".join(part for part in (error.message, error.hint) if part)
        self._show_verdict()

    def _show_verdict(self) -> None:
        if not self.is_mounted:
            return
        wrong: dict[str, str] = {}
        rest: list[Violation] = []
        for violation in self._broken:
            field = drafts.field_of(violation)
            if field:
                wrong[field] = violation.message
            if not field or violation.line:
                rest.append(violation)
        for path, line in self._lines.items():
            line.wrong(wrong.get(path, ""))
        self.query_one("#verdict", Static).update(self._verdict(rest, len(wrong)))
        self.status(text("submit.status"))
        self.reframe()

    def _verdict(self, rest: Sequence[Violation], beside: int) -> Text:
        shades = tones(self.app.current_theme)
        if self._broken:
            said = [f"✗ {violation}" for violation in rest] or [text("submit.beside", count=beside)]
            return Text("\n".join(said), shades["bad"])
        if self._told:
            return Text(self._told, shades["waits"])
        if self._answer is None:
            return Text(text("submit.checking"), shades["quiet"])
        answer = self._answer
        sign, tone = _SIGNS.get(answer.outcome, ("?", "plain"))
        lines = list(sentences(answer))
        said_text = Text(f"{sign} {lines[0]}", shades[tone])
        when = start_sentences(answer.waiting.predicted_start, self.hai.now())
        for line in [*when, *lines[1:]]:
            said_text.append(f"\n{line}", "not bold")
        return said_text

    # What can be done.

    def _why_not(self) -> str:
        if self._broken or self._draft.spec is None:
            return text("submit.broken")
        return ""

    async def _send(self) -> None:
        spec = self._draft.spec
        if spec is None:
            return
        try:
            task: Task = await self.call(lambda client: client.tasks.create(spec))
        except Invalid as error:
            self._broken = error.violations or (Violation("", error.message),)
            self._show_verdict()
            return
        self.hai.say(text("submitted", id=task.id, name=task.name))
        app = self.hai
        app.back()
        app.goto(f"task {task.id}")

    def _toggle(self) -> None:
        self.toggle_class("yaml")
        self.focus_content()

    def _reset(self) -> None:
        self._show_all(self._start)

    def _ask_load(self) -> None:
        self.ask_line(Question(text("submit.ask.load"), self._load))

    def _load(self, name: str) -> None:
        if not name.strip():
            return
        try:
            shown = Path(name.strip()).expanduser().read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.hai.say(text("submit.cannot_read", path=name, error=error), warning=True)
            return
        self._show_all(drafts.read(shown))

    def _ask_save(self) -> None:
        spec = self._draft.spec
        name = f"{spec.name}.yml" if spec is not None and spec.name else "task.yml"
        self.ask_line(Question(text("submit.ask.save"), self._save, name))

    def _save(self, name: str) -> None:
        if name.strip():
            self.start(self._save_to(Path(name.strip()).expanduser()))

    async def _save_to(self, path: Path) -> None:
        exists = await asyncio.to_thread(path.exists)
        if exists and not await self.confirm(text("logs.exists", path=path)):
            return
        try:
            await asyncio.to_thread(path.write_text, self._draft.text, "utf-8")
            self.hai.say(text("said.picture", path=path))
        except OSError as error:
            self.hai.say(text("logs.cannot_save", path=path, error=error.strerror), warning=True)


def _line(path: str) -> FormLine:
    choices: tuple[str, ...] = ()
    if path == "priority":
        choices = tuple(PRIORITIES)
    elif path == "task_type":
        choices = _TYPES
    return FormLine(path, text(f"submit.{path}"), choices=choices)

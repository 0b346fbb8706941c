"""Submit a task: form and yaml, both alive; the server says while one types what is wrong and when it would start.

`:submit` begins with the task that was submitted last, `:submit 12` with task 12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input, TextArea

from hai.client.errors import HaiError, Invalid, Unreachable, Violation
from hai_tui.actions import Action
from hai_tui.feed.connection_state import ConnectionState
from hai_tui.i18n import text
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.screens.submit.files import DraftFiles
from hai_tui.style.theme import tones
from hai_tui.submit import draft as drafts
from hai_tui.submit.draft import Draft
from hai_tui.submit.validation_result import ValidationResult
from hai_tui.widgets.form.ordered_input import OrderedTextArea
from hai_tui.widgets.form.submit_form import SubmitForm
from hai_tui.widgets.plain import Static

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task
    from hai.v1.task_spec_pb2 import TaskSpec

PAUSE_SECONDS = 0.4
"""How long nobody types before the server is asked."""


class SubmitPage(DraftFiles):
    """Both views beside one another where there is room, else one at a time."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - as Textual declares it
    DEFAULT_CSS = """
    SubmitPage #content { layout: vertical; }
    SubmitPage #views { layout: horizontal; height: 1fr; }
    SubmitPage TextArea, SubmitPage TextArea:focus { width: 1fr; height: 1fr; border: none;
        border-left: solid $panel; padding: 0; }
    SubmitPage.-narrow TextArea { display: none; }
    SubmitPage.-narrow.yaml SubmitForm { display: none; }
    SubmitPage.-narrow.yaml TextArea { display: block; }
    SubmitPage #verdict { height: auto; max-height: 9; padding: 0 1; background: $surface;
        border-top: solid $panel; }
    """

    def __init__(self, task: str = "") -> None:
        super().__init__()
        self._like = task
        self.draft = drafts.write(drafts.first())
        self._start = self.draft
        self._verdict = ValidationResult()
        self.form = SubmitForm()

    @property
    def area(self) -> TextArea:
        """The yaml."""
        return self.query_one(TextArea)

    def content(self) -> Widget:
        """The form, the yaml, and below them what the server says."""
        area = OrderedTextArea.code_editor(
            "", language="yaml", theme="css", show_line_numbers=True, tab_behavior="indent"
        )
        return Container(Container(self.form, area, id="views"), Static(id="verdict"))

    def focus_content(self) -> None:
        """The first line, or the yaml."""
        if self.has_class("yaml"):
            self.set_focus(self.area)
        else:
            self.form.focus_first()

    def actions(self) -> Sequence[Action]:
        """Keys that are not letters, as letters are typed here."""
        return (
            Action("ctrl+s", "send", "submit.send", self._send, writes=True, why_not=self._why_not),
            Action("f2", "yaml", "submit.yaml", self._toggle),
            Action("f3", "reset", "submit.reset", self._reset),
            Action("f4", "load", "submit.load", self.ask_load),
            Action("f5", "save", "submit.save", self.ask_save),
            Action("f1", "help", "action.help", self.hai.show_help),
        )

    def all_actions(self) -> list[Action]:
        """A letter is none of them here, the palette has those still; and nothing that was written is lost unasked."""
        found = super().all_actions()
        return [
            replace(
                each,
                key="" if len(each.key) == 1 else each.key,
                confirm=self._unsaved if each.name == "back" and each.in_footer else each.confirm,
            )
            for each in found
        ]

    def _unsaved(self) -> str:
        return "" if self.draft.text == self._start.text else text("submit.leave")

    def opened(self) -> None:
        """Begin with the last task, or the one that was named."""
        self.show_draft(self.draft)
        self.fetch(self._begin, self._began)
        self.fetch(lambda client: client.nodes.groups(), self._offer_groups, group="groups")

    def link_changed(self, link: ConnectionState) -> None:
        """What could not be checked is checked when the server is back."""
        if link.live and self.is_mounted and self._verdict.answer is None:
            self._check_soon()

    # Where it begins.

    async def _begin(self, client: Client) -> TaskSpec | None:
        if self._like:
            return (await client.tasks.get(await client.tasks.resolve(self._like))).spec
        found = await client.tasks.list(filter="user:me", page_size=1)
        return (await client.tasks.get(found.tasks[0].id)).spec if found.tasks else None

    def _began(self, spec: TaskSpec | None) -> None:
        if spec is not None and self.draft is self._start:  # nobody has typed meanwhile
            self._start = drafts.write(drafts.again(spec))
            self.show_draft(self._start)
        self._check_soon()

    def _offer_groups(self, groups: Sequence[object]) -> None:
        names = [f"{group.name}" for group in groups]  # type: ignore[attr-defined]
        self.form.offer("resource.group", names)

    # Two views of one text.

    def on_submit_form_changed(self, event: SubmitForm.Changed) -> None:
        """A line of the form."""
        before, self.draft = self.draft, drafts.change(self.draft, event.path, event.value)
        if self.draft.text != before.text:
            self._write_yaml(self.draft.text)
        self._edited()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """The yaml."""
        if event.text_area.text == self.draft.text:
            return
        self.draft = drafts.read(event.text_area.text)
        if self.draft.spec is not None:
            self.form.show(self.draft.spec)
        self._edited()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: the next line."""
        event.stop()
        self.focus_next()

    def show_draft(self, draft: Draft) -> None:
        """In both views."""
        self.draft = draft
        self._write_yaml(draft.text)
        if draft.spec is not None:
            self.form.show(draft.spec)
        self._edited()

    def _write_yaml(self, yaml_text: str) -> None:
        with self.area.prevent(TextArea.Changed):
            self.area.load_text(yaml_text)

    def _edited(self) -> None:
        if self.draft.spec is not None:
            self.form.compare(self._start.spec)
        self._show(ValidationResult(self.draft.broken()))
        self._check_soon()

    # What the server says.

    def _check_soon(self) -> None:
        """A newer text, right or wrong, cancels the question about an older one."""
        self.workers.cancel_group(self, "check")
        if self.draft.spec is not None and not self.draft.broken() and self.is_mounted:
            run_in_background(self, self._check, group="check")

    async def _check(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        checked_draft = self.draft
        if checked_draft.spec is None:
            return
        spec = checked_draft.spec
        try:
            answer = await self.call(lambda client: client.tasks.dry_run(spec))
            self._show(ValidationResult(answer=answer))
        except Invalid as error:
            self._show(_broken(error))
        except Unreachable:
            self._show(ValidationResult(sentence=text("submit.unreachable")))
        except HaiError as error:
            self._show(
                ValidationResult(sentence="\n".join(filter(None, (error.message, error.hint))))
            )

    def _show(self, verdict: ValidationResult) -> None:
        self._verdict = verdict
        if not self.is_ready:
            return
        self.form.wrong(verdict.beside())
        arguments = verdict.as_text(tones(self.app.current_theme), self.hai.now())
        self.query_one("#verdict", Static).update(arguments)
        self.status(text("submit.status"))
        self.refresh_frame()

    # What can be done.

    def _why_not(self) -> str:
        if self._verdict.broken or self.draft.spec is None:
            return text("submit.broken")
        return ""

    async def _send(self) -> None:
        spec = self.draft.spec
        if spec is None:
            return
        try:
            task: Task = await self.call(lambda client: client.tasks.create(spec))
        except Invalid as error:
            self._show(_broken(error))
            return
        self.hai.say(text("submitted", id=task.id, name=task.name))
        app = self.hai
        app.back()
        app.goto(f"task {task.id}")

    def _toggle(self) -> None:
        self.toggle_class("yaml")
        self.focus_content()

    def _reset(self) -> None:
        self.show_draft(self._start)


def _broken(error: Invalid) -> ValidationResult:
    return ValidationResult(error.violations or (Violation("", error.message),))

"""The page that submits a task, as a form and as yaml. While the user types, the server says what is wrong with the
task and when it would start.

`:submit` begins with the task that was submitted last, `:submit 12` with task 12.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input, TextArea

from hai.client.errors import HaiError, Invalid, Unreachable, Violation
from hai_tui.actions import Action
from hai_tui.feed.connection_state import ConnectionState
from hai_tui.i18n import text
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.screens.page import Page
from hai_tui.style.theme import tones
from hai_tui.submit import draft as drafts
from hai_tui.submit.draft import Draft
from hai_tui.submit.validation_result import ValidationResult
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.form.ordered_input import OrderedTextArea
from hai_tui.widgets.form.submit_form import SubmitForm
from hai_tui.widgets.plain import Static

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task
    from hai.v1.task_spec_pb2 import TaskSpec

PAUSE_SECONDS = 0.4
"""The server is asked when the user has not typed for this time."""


class SubmitPage(Page):
    """Shows form and yaml side by side where there is room, else one at a time."""

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
        self._template_task = task
        self.draft = drafts.draft_of(drafts.initial_spec())
        self._original = self.draft
        self._result = ValidationResult()
        self.form = SubmitForm()

    @property
    def yaml_area(self) -> TextArea:
        return self.query_one(TextArea)

    def content(self) -> Widget:
        area = OrderedTextArea.code_editor(
            "", language="yaml", theme="css", show_line_numbers=True, tab_behavior="indent"
        )
        return Container(Container(self.form, area, id="views"), Static(id="verdict"))

    def focus_content(self) -> None:
        if self.has_class("yaml"):
            self.set_focus(self.yaml_area)
        else:
            self.form.focus_first()

    def actions(self) -> Sequence[Action]:
        """Return the actions. None has a letter as its key, because users type letters here."""
        return (
            Action("ctrl+s", "send", "submit.send", self._send, writes=True, why_not=self._why_not),
            Action("f2", "yaml", "submit.yaml", self._toggle_view),
            Action("f3", "reset", "submit.reset", self._reset),
            Action("f4", "load", "submit.load", self._ask_load),
            Action("f5", "save", "submit.save", self._ask_save),
            Action("f1", "help", "action.help", self.hai.show_help),
        )

    def all_actions(self) -> list[Action]:
        """Return all actions without their letters, and ask before a draft with changes is left."""
        return [
            replace(
                each,
                key="" if len(each.key) == 1 else each.key,
                confirm=self._unsaved_question
                if each.name == "back" and each.in_footer
                else each.confirm,
            )
            for each in super().all_actions()
        ]

    def _unsaved_question(self) -> str:
        return "" if self.draft.text == self._original.text else text("submit.leave")

    def opened(self) -> None:
        self.show_draft(self.draft)
        self.fetch(self._load_template, self._use_template)
        self.fetch(lambda client: client.nodes.groups(), self._offer_groups, group="groups")

    def link_changed(self, link: ConnectionState) -> None:
        """Check the draft once the server can be reached again."""
        if link.live and self.is_mounted and self._result.answer is None:
            self._check_soon()

    # The first draft.

    async def _load_template(self, client: Client) -> TaskSpec | None:
        if self._template_task:
            return (await client.tasks.get(await client.tasks.resolve(self._template_task))).spec
        page = await client.tasks.list(filter="user:me", page_size=1)
        return (await client.tasks.get(page.tasks[0].id)).spec if page.tasks else None

    def _use_template(self, spec: TaskSpec | None) -> None:
        if spec is not None and self.draft is self._original:  # the user has typed nothing yet
            self._original = drafts.draft_of(drafts.resubmission_of(spec))
            self.show_draft(self._original)
        self._check_soon()

    def _offer_groups(self, groups: Sequence[object]) -> None:
        names = [f"{group.name}" for group in groups]  # type: ignore[attr-defined]
        self.form.set_choices("resource.group", names)

    # Two views of one text.

    def on_submit_form_changed(self, event: SubmitForm.Changed) -> None:
        before, self.draft = self.draft, drafts.set_field(self.draft, event.path, event.value)
        if self.draft.text != before.text:
            self._write_yaml(self.draft.text)
        self._after_edit()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if event.text_area.text == self.draft.text:
            return
        self.draft = drafts.read_draft(event.text_area.text)
        if self.draft.spec is not None:
            self.form.show_spec(self.draft.spec)
        self._after_edit()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the next line."""
        event.stop()
        self.focus_next()

    def show_draft(self, draft: Draft) -> None:
        """Show a draft in both views."""
        self.draft = draft
        self._write_yaml(draft.text)
        if draft.spec is not None:
            self.form.show_spec(draft.spec)
        self._after_edit()

    def _write_yaml(self, yaml_text: str) -> None:
        with self.yaml_area.prevent(TextArea.Changed):
            self.yaml_area.load_text(yaml_text)

    def _after_edit(self) -> None:
        if self.draft.spec is not None:
            self.form.mark_changes(self._original.spec)
        self._show_result(ValidationResult(self.draft.find_violations()))
        self._check_soon()

    # Validation.

    def _check_soon(self) -> None:
        """Check the draft after a pause; the check of an older text is cancelled."""
        self.workers.cancel_group(self, "check")
        if self.draft.spec is not None and not self.draft.find_violations() and self.is_mounted:
            run_in_background(self, self._check, group="check")

    async def _check(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        spec = self.draft.spec
        if spec is None:
            return
        try:
            answer = await self.call(lambda client: client.tasks.dry_run(spec))
            self._show_result(ValidationResult(answer=answer))
        except Invalid as error:
            self._show_result(_invalid_result(error))
        except Unreachable:
            self._show_result(ValidationResult(error=text("submit.unreachable")))
        except HaiError as error:
            message = "\n".join(filter(None, (error.message, error.hint)))
            self._show_result(ValidationResult(error=message))

    def _show_result(self, result: ValidationResult) -> None:
        self._result = result
        if not self.is_ready:
            return
        self.form.show_errors(result.field_messages())
        content = result.as_text(tones(self.app.current_theme), self.hai.now())
        self.query_one("#verdict", Static).update(content)
        self.status(text("submit.status"))
        self.refresh_frame()

    # Actions.

    def _why_not(self) -> str:
        if self._result.violations or self.draft.spec is None:
            return text("submit.broken")
        return ""

    async def _send(self) -> None:
        spec = self.draft.spec
        if spec is None:
            return
        try:
            task: Task = await self.call(lambda client: client.tasks.create(spec))
        except Invalid as error:
            self._show_result(_invalid_result(error))
            return
        self.hai.say(text("submitted", id=task.id, name=task.name))
        for warning in task.warnings:
            self.hai.say(warning, warning=True)
        app = self.hai
        app.back()
        app.goto(f"task {task.id}")

    def _toggle_view(self) -> None:
        self.toggle_class("yaml")
        self.focus_content()

    def _reset(self) -> None:
        self.show_draft(self._original)

    # Files.

    def _ask_load(self) -> None:
        self.ask_line(Question(text("submit.ask.load"), self._load))

    def _ask_save(self) -> None:
        spec = self.draft.spec
        name = f"{spec.name}.yml" if spec is not None and spec.name else "task.yml"
        self.ask_line(Question(text("submit.ask.save"), self._save, name))

    def _load(self, name: str) -> None:
        if not name.strip():
            return
        try:
            content = Path(os.path.expanduser(name.strip())).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            self.hai.say(text("submit.cannot_read", path=name, error=error), warning=True)
            return
        self.show_draft(drafts.read_draft(content))

    def _save(self, name: str) -> None:
        if name.strip():
            path = Path(os.path.expanduser(name.strip()))
            self.start(self.save(path, lambda: self._write(path)))

    async def _write(self, path: Path) -> str:
        await asyncio.to_thread(path.write_text, self.draft.text, "utf-8")
        return text("said.saved", path=path)


def _invalid_result(error: Invalid) -> ValidationResult:
    return ValidationResult(error.violations or (Violation("", error.message),))

"""The page of a resource: a list with a few verbs. `hai_tui.resources` describes each kind of resource."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cached_property, partial
from typing import Any

from textual.widget import Widget

from hai.client.errors import HaiError
from hai_tui.actions import Action
from hai_tui.feed.debouncer import Debouncer
from hai_tui.formatting.cells import Cell, Column
from hai_tui.formatting.table import Column as ViewColumn
from hai_tui.formatting.table import printable, width
from hai_tui.i18n import exists, text
from hai_tui.name_warnings import field_warnings
from hai_tui.resources import resources
from hai_tui.resources.containers import Services
from hai_tui.resources.resource_spec import Answers, Item, ResourceSpec, Verb
from hai_tui.runtime.textual_compat import later
from hai_tui.screens.form import FormDialog, Sent
from hai_tui.screens.page import Page
from hai_tui.screens.text_dialog import TextDialog
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.table.virtual_table import VirtualTable

_LAST_WIDTH, _MAX_WIDTH = 16, 42
"""Cells of the last folding column, which takes the room that is left, and the most of any other."""
_RELOAD_SECONDS = 1.0
_TONES = {
    "green": "good",
    "red": "bad",
    "magenta": "held",
    "cyan": "done",
    "dim": "quiet",
    "yellow": "busy",
}
_ROLES = ("USER", "OPERATOR", "ADMIN")


class ResourcePage(Page):
    """A page whose name chooses the kind of resource; the arguments are its filter."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self._items: dict[str, Item] = {}
        self._filter = " ".join(arguments)
        self._loaded = False
        self._reload_soon = Debouncer(
            lambda ids: self.reload(), _RELOAD_SECONDS, partial(later, self)
        )

    @property
    def resource(self) -> ResourceSpec:
        return resources()[self.entry.name]

    @property
    def table(self) -> VirtualTable:
        return self.query_one(VirtualTable)

    @property
    def item(self) -> Item | None:
        """Return the item under the cursor."""
        return self._items.get(self.table.cursor_id)

    def content(self) -> Widget:
        return VirtualTable((), self._items.get, self.hai.now, empty=text("loading"))

    def actions(self) -> Sequence[Action]:
        """Return the verbs of the resource, and the actions of every list."""
        return (
            *(self._action(verb) for verb in self.resource.verbs if verb.new),
            Action(
                "enter,d,y",
                "detail",
                self._open_label(),
                self._open_item,
                why_not=self._why_no_item,
            ),
            *(self._action(verb) for verb in self.resource.verbs if not verb.new),
            Action("/", "filter", "do.filter", self._ask_filter),
            Action("ctrl+r", "reload", "do.reload", self.reload),
            Action("w", "wide", "do.wide", self._toggle_wide, in_footer=False),
            Action("c", "copy", "do.copy", self._copy, in_footer=False, why_not=self._why_no_item),
        )

    def _open_label(self) -> str:
        return "do.open" if self.resource.opens is not None else "do.detail"

    def opened(self) -> None:
        self.reload()

    def page_resumed(self) -> None:
        """Load what may have changed while another page was on top."""
        if self._loaded:
            self.reload()

    def tasks_changed(self, ids: set[int]) -> None:
        """Reload a live list while it is on top."""
        if self.resource.live and self._loaded and self.is_on_top:
            self._reload_soon.add(ids)

    def reload(self) -> None:
        """Load the list again; the table stays until the answer arrives."""
        self.hai.retry_now()
        self.fetch(self.resource.load, self._show_items)

    def refused(self, error: HaiError) -> None:
        """Show the error in the place of the list."""
        self.table.empty = text("refused", message=" ".join((error.message, error.hint)).strip())
        self.table.refresh()
        self.status("")

    def on_virtual_table_opened(self) -> None:
        self._open_item()

    # Drawing.

    def _show_items(self, items: Sequence[Item]) -> None:
        name = self.resource.view.name
        self._items.clear()
        for item in items:
            key = name(item)
            self._items[key if key not in self._items else f"{key}#{len(self._items)}"] = item
        self._loaded = True
        self.table.empty = text(self.resource.view.empty)
        self.table.set_columns(self._columns())
        self._apply_filter()

    def _apply_filter(self) -> None:
        if not self.is_ready:
            return
        words = self._filter.lower().split()
        keys = [key for key, item in self._items.items() if self._matches(item, words)]
        self.table.show(keys)
        facts = {"shown": len(keys), "all": len(self._items)}
        filtered = text("list.filtered", filter=self._filter, **facts) if words else ""
        count = "list.most" if 0 < self.resource.limit <= len(self._items) else "list.count"
        self.status(filtered or self.status_note() or text(count, about=self.entry.about, **facts))
        self.refresh_frame()

    def status_note(self) -> str:
        """Hook: return a note that the status line shows in the place of the number of items."""
        return ""

    def _matches(self, item: Item, words: Sequence[str]) -> bool:
        now = self.hai.now()
        line = " ".join(column.value(item, now) for column in self.resource.columns).lower()
        return all(word in line for word in words)

    def _columns(self) -> list[Column]:
        """Return all columns. A column that a command shows only on demand appears where there is room."""
        columns = [column for column in self.resource.columns if self._has_values(column)]
        usual = [column for column in columns if not column.wide]
        last = ([column for column in usual if column.folds] or usual)[-1]
        return [
            self._column(column, position, is_last=column is last)
            for position, column in enumerate(columns)
        ]

    def _has_values(self, column: ViewColumn) -> bool:
        now = self.hai.now()
        items = self._items.values() if column.optional else ()
        return not column.optional or any(column.value(item, now) != "-" for item in items)

    def _column(self, column: ViewColumn, position: int, *, is_last: bool) -> Column:
        title = text(f"col.{column.key}") if exists(f"col.{column.key}") else column.key.upper()
        now = self.hai.now()
        cells = [printable(column.value(item, now)) for item in self._items.values()]
        widest = max([width(title), *map(width, cells)])
        return Column(
            column.key,
            title,
            min(widest, _LAST_WIDTH if is_last else _MAX_WIDTH),
            partial(_cell, column),
            column.right,
            flex=column.wide or is_last,
            drop=0 if is_last else position,
            most=widest,
            spare=column.wide,
        )

    # Actions.

    def _action(self, verb: Verb) -> Action:
        return Action(
            verb.key,
            verb.name,
            f"do.{verb.name}",
            partial(self._run, verb),
            right=verb.right,
            writes=verb.writes,
            why_not=partial(self._why_not, verb),
        )

    def _why_not(self, verb: Verb) -> str:
        caller = self.hai.caller
        if verb.role and caller.name and _role_level(caller.role) < _role_level(verb.role):
            facts = {"role": verb.role, "user": caller.name, "own": caller.role.lower()}
            return text("refused.role", action=text(f"do.{verb.name}"), **facts)
        return "" if verb.new else self._why_no_item()

    def _why_no_item(self) -> str:
        return "" if self.item is not None else text("refused.nothing")

    def _run(self, verb: Verb) -> Awaitable[None]:
        item = None if verb.new else self.item
        title = self._heading(verb, item)
        confirmation_word = verb.word_to_type(item) if verb.word_to_type else ""
        if verb.needs_confirmation or confirmation_word:
            confirmed = self.confirm(f"{title}?", confirmation_word)
            return self._run_if(confirmed, verb, item, title)
        return self._report_answer(verb, title, self._ask_and_send(verb, item, title))

    async def _run_if(
        self, confirmed: Awaitable[bool], verb: Verb, item: Item | None, title: str
    ) -> None:
        if await confirmed:
            await self._report_answer(verb, title, self._ask_and_send(verb, item, title))

    def _ask_and_send(self, verb: Verb, item: Item | None, title: str) -> Awaitable[Sent | None]:
        """Open the form at once if the verb has fields; return what the server answers, or None."""
        send, now = partial(self._send, verb, item), self.hai.now()
        if verb.fields:
            return self.ask(FormDialog(title, verb.fields, item, send, now))
        return self._sent(send(Answers({}, now)))

    async def _sent(self, answer: Awaitable[Any]) -> Sent:
        return Sent(await answer)

    async def _report_answer(self, verb: Verb, title: str, answer: Awaitable[Sent | None]) -> None:
        if (sent := await answer) is not None:
            self._report(verb, title, sent.answer)

    async def _send(self, verb: Verb, item: Item | None, answers: Answers) -> Any:
        argument = verb.make(item, answers)
        if not answers.errors and not answers.warnings_accepted:
            answers.errors |= await self.call(lambda client: field_warnings(client, answers.values))
            answers.has_warnings = bool(answers.errors)
        if answers.errors:
            return None
        return await self.call(lambda client: verb.send(client, argument))

    def _report(self, verb: Verb, title: str, answer: Any) -> None:
        if verb.result_text is not None:
            clipboard_text = verb.clipboard_text(answer) if verb.clipboard_text else ""
            result_text = verb.result_text(answer)
            self.app.push_screen(TextDialog(title, result_text, clipboard_text=clipboard_text))
        else:
            self.hai.say(text("done.verb", title=title))
        if verb.writes:
            self.reload()

    def _heading(self, verb: Verb, item: Item | None) -> str:
        kind = text(f"kind.{self.entry.name}")
        name = kind if item is None else self.resource.view.name(item)
        return f"{text(f'do.{verb.name}')}: {name}"

    def _open_item(self) -> None:
        item = self.item
        if item is None:
            return
        if self.resource.opens is not None:
            self.hai.goto(self.resource.opens(item))
            return
        self.app.push_screen(TextDialog(self.resource.view.name(item), _as_yaml(item), "yaml"))

    def _copy(self) -> None:
        if self.item is not None:
            name = self.resource.view.name(self.item)
            self.app.copy_to_clipboard(name)
            self.hai.say(text("said.copied", what=name))

    def _ask_filter(self) -> None:
        self.ask_line(
            Question(text("do.filter"), self._set_filter, self._filter, changed=self._set_filter)
        )

    def _set_filter(self, filter: str) -> None:
        self._filter = filter
        self._apply_filter()

    def _toggle_wide(self) -> None:
        self.table.all_columns = not self.table.all_columns
        self.table.set_columns(self._columns())


class ServicesPage(ResourcePage):
    """The services of one task, and how long a container may stay. Opened by `:services TASK [FILTER]`."""

    def __init__(self, task: str, *arguments: str) -> None:
        super().__init__(*arguments)
        self._services = Services(task)

    @cached_property
    def resource(self) -> ResourceSpec:
        return self._services.resource()

    def title_text(self) -> str:
        return f"{self.entry.title} {self._services.task}"

    def status_note(self) -> str:
        return self._services.lifetime_text if self.table.ids else ""


def _as_yaml(item: Item) -> str:
    """Return every field of a message as yaml."""
    import yaml

    from hai_tui.formatting.documents import to_dict

    return str(yaml.safe_dump(to_dict(item), sort_keys=False, allow_unicode=True))


def _cell(column: ViewColumn, item: Item, now: float) -> Cell:
    cell_text = column.value(item, now)
    tone = _TONES.get(column.style(cell_text), "plain") if column.style else "plain"
    return Cell(cell_text, tone)


def _role_level(role: str) -> int:
    return _ROLES.index(role.upper()) if role.upper() in _ROLES else 0

"""One page for every kind of thing that is a list with a few verbs; `hai_tui.resources` says what they are."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
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
from hai_tui.resources.resource_spec import Answers, Item, ResourceSpec, Verb
from hai_tui.runtime.textual_compat import later
from hai_tui.screens.form import Done, FormDialog
from hai_tui.screens.page import Page
from hai_tui.screens.text_dialog import TextDialog
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.table.virtual_table import VirtualTable

_NARROWEST, _WIDEST = 16, 42
_LIVE_SECONDS = 1.0
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
    """The page's name chooses the kind; words after it are its filter."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self._items: dict[str, Item] = {}
        self._filter = " ".join(arguments)
        self._loaded = False
        self._soon = Debouncer(lambda ids: self.reload(), _LIVE_SECONDS, partial(later, self))

    @property
    def resource(self) -> ResourceSpec:
        """The kind."""
        return resources()[self.entry.name]

    @property
    def table(self) -> VirtualTable:
        """The table."""
        return self.query_one(VirtualTable)

    @property
    def item(self) -> Item | None:
        """The one under the cursor."""
        return self._items.get(self.table.cursor_id)

    def content(self) -> Widget:
        """A table."""
        return VirtualTable((), self._items.get, self.hai.now, empty=text("loading"))

    def actions(self) -> Sequence[Action]:
        """The verbs of the kind, and what every table can."""
        return (
            *(self._action(verb) for verb in self.resource.verbs if verb.new),
            Action("enter,d,y", "detail", self._opening(), self._detail, why_not=self._nothing),
            *(self._action(verb) for verb in self.resource.verbs if not verb.new),
            Action("/", "filter", "do.filter", self._ask_filter),
            Action("ctrl+r", "reload", "do.reload", self.reload),
            Action("w", "wide", "do.wide", self._wide, in_footer=False),
            Action("c", "copy", "do.copy", self._copy, in_footer=False, why_not=self._nothing),
        )

    def _opening(self) -> str:
        return "do.open" if self.resource.opens is not None else "do.detail"

    def opened(self) -> None:
        """Ask the server."""
        self.reload()

    def page_resumed(self) -> None:
        """It may have changed behind another page."""
        if self._loaded:
            self.reload()

    def tasks_changed(self, ids: set[int]) -> None:
        """A live list follows the tasks while it is seen."""
        if self.resource.live and self._loaded and self.on_top:
            self._soon.add(ids)

    def reload(self) -> None:
        """Ask again; the table stays until the answer is there."""
        self.hai.retry_now()
        self.fetch(self.resource.load, self._show)

    def refused(self, error: HaiError) -> None:
        """It stands in the place of the list."""
        self.table.empty = text("refused", message=" ".join((error.message, error.hint)).strip())
        self.table.refresh()
        self.status("")

    def on_virtual_table_opened(self) -> None:
        """Enter."""
        self._detail()

    # What is shown.

    def _show(self, items: Sequence[Item]) -> None:
        name = self.resource.view.name
        self._items.clear()
        for item in items:
            key = name(item)
            self._items[key if key not in self._items else f"{key}#{len(self._items)}"] = item
        self._loaded = True
        self.table.empty = text(self.resource.view.empty)
        self.table.set_columns(self._columns())
        self._filtered()

    def _filtered(self) -> None:
        if not self.is_ready:
            return
        arguments = self._filter.lower().split()
        keys = [key for key, item in self._items.items() if self._passes(item, arguments)]
        self.table.show(keys)
        facts = {"shown": len(keys), "all": len(self._items)}
        sentence = text("list.filtered", filter=self._filter, **facts) if arguments else ""
        count = "list.most" if 0 < self.resource.most <= len(self._items) else "list.count"
        self.status(sentence or self.status_note() or text(count, about=self.entry.about, **facts))
        self.refresh_frame()

    def status_note(self) -> str:
        """What is to be said of all of them, in the place of how many they are."""
        return ""

    def _passes(self, item: Item, arguments: Sequence[str]) -> bool:
        now = self.hai.now()
        line = " ".join(column.value(item, now) for column in self.resource.columns).lower()
        return all(confirmation_word in line for confirmation_word in arguments)

    def _columns(self) -> list[Column]:
        """All of them; those that a command shows only when asked come where there is room."""
        columns = self.resource.columns
        usual = [column for column in columns if not column.wide]
        last = [column for column in usual if column.folds] or usual
        return [
            self._column(column, position, least=_NARROWEST if column is last[-1] else _WIDEST)
            for position, column in enumerate(columns)
        ]

    def _column(self, column: ViewColumn, position: int, *, least: int) -> Column:
        title = text(f"col.{column.key}") if exists(f"col.{column.key}") else column.key.upper()
        now = self.hai.now()
        cells = [printable(column.value(item, now)) for item in self._items.values()]
        widest = max([width(title), *map(width, cells)])
        return Column(
            column.key,
            title,
            min(widest, least),
            partial(_cell, column),
            column.right,
            flex=column.wide or least == _NARROWEST,
            drop=0 if least == _NARROWEST else position,
            most=widest,
            spare=column.wide,
        )

    # What can be done.

    def _action(self, verb: Verb) -> Action:
        return Action(
            verb.key,
            verb.name,
            f"do.{verb.name}",
            partial(self._do, verb),
            right=verb.right,
            writes=verb.writes,
            why_not=partial(self._why_not, verb),
        )

    def _why_not(self, verb: Verb) -> str:
        caller = self.hai.caller
        if verb.role and caller.name and _rank(caller.role) < _rank(verb.role):
            facts = {"role": verb.role, "user": caller.name, "own": caller.role.lower()}
            return text("refused.role", action=text(f"do.{verb.name}"), **facts)
        return "" if verb.new else self._nothing()

    def _nothing(self) -> str:
        return "" if self.item is not None else text("refused.nothing")

    def _do(self, verb: Verb) -> Awaitable[None]:
        item = None if verb.new else self.item
        title = self._heading(verb, item)
        confirmation_word = verb.word_to_type(item) if verb.word_to_type else ""
        if verb.needs_confirmation or confirmation_word:
            return self._do_after(self.confirm(f"{title}?", confirmation_word), verb, item, title)
        return self._finished(verb, title, self._answered(verb, item, title))

    async def _do_after(
        self, yes: Awaitable[bool], verb: Verb, item: Item | None, title: str
    ) -> None:
        if await yes:
            await self._finished(verb, title, self._answered(verb, item, title))

    def _answered(self, verb: Verb, item: Item | None, title: str) -> Awaitable[Done | None]:
        """What the server says; where the verb has fields, once they are filled in."""
        send, now = partial(self._send, verb, item), self.hai.now()
        if verb.fields:
            return self.ask(FormDialog(title, verb.fields, item, send, now))
        return self._sent(send(Answers({}, now)))

    async def _sent(self, sending: Awaitable[Any]) -> Done:
        return Done(await sending)

    async def _finished(self, verb: Verb, title: str, answered: Awaitable[Done | None]) -> None:
        if (done := await answered) is not None:
            self._report(verb, title, done.answer)

    async def _send(self, verb: Verb, item: Item | None, answers: Answers) -> Any:
        made = verb.make(item, answers)
        if not answers.wrong and not answers.confirmed:
            answers.wrong |= await self.call(lambda client: field_warnings(client, answers.values))
            answers.questioned = bool(answers.wrong)
        if answers.wrong:
            return None
        return await self.call(lambda client: verb.send(client, made))

    def _report(self, verb: Verb, title: str, answer: Any) -> None:
        if verb.result_text is not None:
            copied_text = verb.clipboard_text(answer) if verb.clipboard_text else ""
            self.app.push_screen(
                TextDialog(title, verb.result_text(answer), clipboard_text=copied_text)
            )
        else:
            self.hai.say(text("done.verb", title=title))
        if verb.writes:
            self.reload()

    def _heading(self, verb: Verb, item: Item | None) -> str:
        sentence = text(f"do.{verb.name}")
        kind = text(f"kind.{self.entry.name}")
        return (
            f"{sentence}: {kind}"
            if item is None
            else f"{sentence}: {self.resource.view.name(item)}"
        )

    def _detail(self) -> None:
        item = self.item
        if item is None:
            return
        if self.resource.opens is not None:
            self.hai.goto(self.resource.opens(item))
            return
        self.app.push_screen(TextDialog(self.resource.view.name(item), as_yaml(item), "yaml"))

    def _copy(self) -> None:
        if self.item is not None:
            name = self.resource.view.name(self.item)
            self.app.copy_to_clipboard(name)
            self.hai.say(text("said.copied", what=name))

    def _ask_filter(self) -> None:
        self.ask_line(
            Question(text("do.filter"), self._set_filter, self._filter, changed=self._set_filter)
        )

    def _set_filter(self, arguments: str) -> None:
        self._filter = arguments
        self._filtered()

    def _wide(self) -> None:
        self.table.all_columns = not self.table.all_columns
        self.table.set_columns(self._columns())


def as_yaml(item: Item) -> str:
    """Every field of a message."""
    import yaml

    from hai_tui.formatting.documents import to_dict

    return str(yaml.safe_dump(to_dict(item), sort_keys=False, allow_unicode=True))


def _cell(column: ViewColumn, item: Item, now: float) -> Cell:
    cell_text = column.value(item, now)
    tone = _TONES.get(column.style(cell_text), "plain") if column.style else "plain"
    return Cell(cell_text, tone)


def _rank(role: str) -> int:
    return _ROLES.index(role.upper()) if role.upper() in _ROLES else 0

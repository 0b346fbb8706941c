"""`P`: which of the stored servers to speak to."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from hai.client import profile as profiles
from hai_tui.i18n import text


class ProfileScreen(ModalScreen[str | None]):
    """Answers with the chosen name; None: leave it as it is."""

    DEFAULT_CSS = """
    ProfileScreen { align: center middle; background: $background 60%; }
    ProfileScreen > Vertical { width: 70; max-width: 95%; height: auto; max-height: 80%;
        border: round $primary; background: $surface; padding: 0 1; }
    ProfileScreen OptionList, ProfileScreen OptionList:focus { height: auto; max-height: 16;
        border: none; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", show=False)]

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def compose(self) -> ComposeResult:
        """One line a profile; the current one is marked."""
        with Vertical() as box:
            box.border_title = text("profile.title")
            yield OptionList(*(self._option(name) for name in profiles.names()), markup=False)
            yield Label(text("profile.keys"), markup=False)

    def on_mount(self) -> None:
        """The cursor begins on the current one."""
        names = profiles.names()
        if self._current in names:
            self.query_one(OptionList).highlighted = list(names).index(self._current)

    def _option(self, name: str) -> Option:
        sign = "●" if name == self._current else " "
        return Option(f"{sign} {name:<20} {profiles.load(name).server}", id=name)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """The answer."""
        self.dismiss(event.option.id)

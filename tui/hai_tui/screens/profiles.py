"""The dialog on `P`: switches to another stored server profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets.option_list import Option

from hai.client.profile import Profile
from hai_tui.i18n import text
from hai_tui.widgets.dialogs.dialog import Dialog
from hai_tui.widgets.plain import Label, OptionList, plain


class ProfileDialog(Dialog[str | None]):
    """Returns the name of the chosen profile, or None."""

    DEFAULT_CSS = """
    ProfileDialog { align: center middle; background: $background 60%; }
    ProfileDialog > Vertical { width: 70; max-width: 95%; height: auto; max-height: 80%;
        border: round $primary; background: $surface; padding: 0 1; }
    ProfileDialog OptionList, ProfileDialog OptionList:focus { height: auto; max-height: 16;
        border: none; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", show=False)]

    def __init__(self, current: str, profiles: Sequence[Profile]) -> None:
        super().__init__()
        self._current, self._profiles = current, profiles

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = plain(text("profile.title"))
            yield OptionList(*map(self._option, self._profiles))
            yield Label(text("profile.keys"))

    def on_mount(self) -> None:
        """Put the cursor on the current profile."""
        names = [profile.name for profile in self._profiles]
        if self._current in names:
            self.query_one(OptionList).highlighted = names.index(self._current)

    def _option(self, profile: Profile) -> Option:
        mark = "●" if profile.name == self._current else " "
        return Option(f"{mark} {profile.name:<20} {profile.server}", id=profile.name)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

"""Actions of a page. One value feeds the key, the footer, the help and the palette.

Only this module decides whether the caller may use an action, so that all four agree. The server decides in the end;
the check here saves a request and names the missing right.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hai_tui.i18n import text

Handler = Callable[[], Awaitable[None] | None]

_OPERATOR = frozenset({"manage_tasks", "manage_nodes", "manage_storage", "assign_nodes"})
_ADMIN = _OPERATOR | {
    "manage_images",
    "manage_users",
    "manage_quotas",
    "manage_tokens",
    "grant_rights",
}
_BY_ROLE = {"OPERATOR": _OPERATOR, "ADMIN": _ADMIN}


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of this session. The name is empty until the server has answered."""

    name: str = ""
    role: str = ""
    groups: tuple[str, ...] = ()
    rights: tuple[str, ...] = ()

    def has(self, right: str) -> bool:
        """True when the role or a grant gives the right, or the server has not answered yet."""
        if not right or not self.name:
            return True
        return right in self.rights or right in _BY_ROLE.get(self.role, frozenset())


@dataclass(frozen=True, slots=True)
class Action:
    """An action. `text_id` is the key of its label; `right` is the right that it needs, if any."""

    key: str  # as it is pressed: "s", "?", "ctrl+d", "space"; empty: palette only
    name: str
    text_id: str
    handler: Handler
    right: str = ""
    writes: bool = False  # changes something: off with --readonly
    in_footer: bool = True  # in the footer; help and palette list all
    confirm: Callable[[], str] | None = None  # the question; empty answer: none is needed
    why_not: Callable[[], str] | None = None  # why it can not be done just now; empty: it can

    @property
    def label(self) -> str:
        """The label in the user's language."""
        return text(self.text_id)


def refusal(action: Action, caller: Caller, *, readonly: bool) -> str:
    """The sentence that says why the caller may not use the action; empty when they may."""
    if readonly and action.writes:
        return text("refused.readonly", action=action.label)
    if not caller.has(action.right):
        facts = {"right": action.right, "user": caller.name, "role": caller.role.lower()}
        return text("refused.right", action=action.label, **facts)
    return action.why_not() if action.why_not else ""


def pressed(key: str, character: str | None) -> str:
    """The name of a key press: the character if it is printable, else Textual's name of the key."""
    if character and character.isprintable() and character != " ":
        return character
    return key


_SHOWN = {
    "escape": "esc", "space": "space", "enter": "⏎", "up": "↑", "down": "↓", "left": "←", "right": "→",
    "pageup": "pgup", "pagedown": "pgdn",
}  # fmt: skip


def key_label(key: str) -> str:
    """The key as footer and help show it: ^d for ctrl+d; the first of several keys."""
    key = key if len(key) == 1 else key.split(",")[0]
    if key.startswith("ctrl+"):
        return f"^{key.removeprefix('ctrl+')}"
    if key.startswith("shift+"):
        return f"⇧{_SHOWN.get(key.removeprefix('shift+'), key.removeprefix('shift+'))}"
    return _SHOWN.get(key, key)

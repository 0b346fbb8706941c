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
        """Return True if the role or a grant gives the right, or if the server has not answered yet."""
        if not right or not self.name:
            return True
        return right in self.rights or right in _BY_ROLE.get(self.role, frozenset())


@dataclass(frozen=True, slots=True)
class Action:
    """An action. `text_id` is the key of its label; `right` is the right that it needs, if any."""

    key: str  # as Textual names it: "s", "?", "ctrl+d", "space"; empty for the palette only
    name: str
    text_id: str
    handler: Handler
    right: str = ""
    writes: bool = False  # True if --readonly disables it
    in_footer: bool = True  # help and palette list all actions
    confirm: Callable[[], str] | None = None  # returns a question, or nothing if none is needed
    why_not: Callable[[], str] | None = None  # returns why it is not possible now, or nothing

    @property
    def label(self) -> str:
        """The label in the user's language."""
        return text(self.text_id)


def refusal(action: Action, caller: Caller, *, readonly: bool) -> str:
    """Return a sentence that says why the caller may not use the action; empty if they may."""
    if readonly and action.writes:
        return text("refused.readonly", action=action.label)
    if not caller.has(action.right):
        facts = {"right": action.right, "user": caller.name, "role": caller.role.lower()}
        return text("refused.right", action=action.label, **facts)
    return action.why_not() if action.why_not else ""


def pressed(key: str, character: str | None) -> str:
    """Return the name of a key press: the character if it is printable, else Textual's name of the key."""
    if character and character.isprintable() and character != " ":
        return character
    return key


_KEY_LABELS = {
    "escape": "esc", "space": "space", "enter": "⏎", "up": "↑", "down": "↓", "left": "←", "right": "→",
    "pageup": "pgup", "pagedown": "pgdn",
}  # fmt: skip


def key_label(key: str) -> str:
    """Return the key as footer and help show it, such as ^d for ctrl+d. Of several keys, return the first."""
    key = key if len(key) == 1 else key.split(",")[0]
    if key.startswith("ctrl+"):
        return f"^{key.removeprefix('ctrl+')}"
    if key.startswith("shift+"):
        return f"⇧{_KEY_LABELS.get(key.removeprefix('shift+'), key.removeprefix('shift+'))}"
    return _KEY_LABELS.get(key, key)

"""Validates names of environments, users, layers and variables, before they become parts of paths. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from haienv.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LAYER = re.compile(r"[0-9a-f]{24}")
_REFERENCE = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CURRENT_LINK = re.compile(r"\.\./\.layers/([0-9a-f]{24})")
_RESERVED = ("PATH", "PYTHONPATH", "PYTHONHOME", "PS1", "VIRTUAL_ENV")
_LEGACY_NAME = re.compile(r"py[0-9]{1,3}-([0-9]{6})")
SYSTEM = "system"
"""The user whose environments a name finds if the caller has none of that name."""


@dataclass(frozen=True, slots=True)
class Reference:
    """NAME or NAME[USER], as a user writes it. If the owner is empty, the owner must still be found."""

    name: str
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.name}[{self.owner}]" if self.owner else self.name


def is_name(text: str) -> bool:
    """Return True if the text is a valid name of an environment or a user."""
    return _NAME.fullmatch(text) is not None


def is_layer(text: str) -> bool:
    """Return True if the text is a valid layer id."""
    return _LAYER.fullmatch(text) is not None


def parse_layer_link(target: str) -> str:
    """Return the layer id in the target of a `current` link; empty if the target is invalid."""
    match = _CURRENT_LINK.fullmatch(target)
    return match[1] if match else ""


def check_name(text: str, kind: str = "environment") -> str:
    """Return the name of an environment or a user unchanged. Raise UsageError if it is invalid."""
    if not is_name(text):
        raise UsageError(
            f"{text!r} is not a valid name of {'an environment' if kind == 'environment' else f'a {kind}'}",
            "a name has at most 63 letters, digits, dots, dashes and underscores, and does not begin with . or -",
        )
    return text


def parse_reference(text: str, owner: str | None = None) -> Reference:
    """Parse NAME, NAME[USER], or NAME with a separate owner. Raise UsageError."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is neither NAME nor NAME[USER]")
    user = match[2] if match[2] is not None else owner
    if owner and user != owner:
        raise UsageError(f"{text!r} names another owner than {owner!r}", "name the owner once")
    return Reference(check_name(match[1]), "" if user is None else check_name(user, "user"))


def translate_legacy_name(name: str) -> str:
    """Return 202111 for py3-202111, which is HAI's name of a system environment; empty for other names."""
    match = _LEGACY_NAME.fullmatch(name)
    return match[1] if match else ""


def variable_fault(name: str) -> str:
    """Return why an environment cannot set a variable of this name; empty if it can."""
    if not _VARIABLE.fullmatch(name):
        return f"{name!r} is not a valid name of a variable: use letters, digits and underscores"
    if name in _RESERVED or name.startswith(("HF_ENV_", "_HAIENV_")):
        return f"{name} is set by activation itself"
    return ""

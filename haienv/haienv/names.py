"""Names of environments, users and layers: what may become a part of a path. Pure."""

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
"""The user whose environments everybody finds right after their own."""


@dataclass(frozen=True, slots=True)
class Reference:
    """NAME or NAME[USER], as a user writes it. An empty owner: whose it is must be looked up."""

    name: str
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.name}[{self.owner}]" if self.owner else self.name


def is_name(text: str) -> bool:
    """True when a text may name an environment or a user."""
    return _NAME.fullmatch(text) is not None


def is_layer(text: str) -> bool:
    """True when a text may name a layer."""
    return _LAYER.fullmatch(text) is not None


def layer_of_link(target: str) -> str:
    """The layer that a `current` link names; empty: the link is not one of ours."""
    match = _CURRENT_LINK.fullmatch(target)
    return match[1] if match else ""


def check_name(text: str, kind: str = "environment") -> str:
    """The name itself, or UsageError."""
    if not is_name(text):
        raise UsageError(
            f"{text!r} is no name of {'an environment' if kind == 'environment' else f'a {kind}'}",
            "letters, digits, dots, dashes and underscores, 63 at most, not beginning with . or -",
        )
    return text


def parse_reference(text: str, owner: str | None = None) -> Reference:
    """NAME, NAME[USER], or NAME with the owner given apart."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is neither NAME nor NAME[USER]")
    user = match[2] if match[2] is not None else owner
    if owner and user != owner:
        raise UsageError(f"{text!r} names another owner than {owner!r}", "give one of them")
    return Reference(check_name(match[1]), "" if user is None else check_name(user, "user"))


def legacy_name(name: str) -> str:
    """What the system's environment is called that HAI called py3-202111; empty: this is no such name."""
    match = _LEGACY_NAME.fullmatch(name)
    return match[1] if match else ""


def variable_fault(name: str) -> str:
    """Why a variable may not belong to an environment; empty: it may."""
    if not _VARIABLE.fullmatch(name):
        return f"{name!r} cannot name a variable: letters, digits and underscores only"
    if name in _RESERVED or name.startswith(("HF_ENV_", "_HAIENV_")):
        return f"{name} is set by activation itself"
    return ""

"""Sentences of the terminal app in English and Chinese, by the mechanism of the command's texts.

Each screen keeps its own table in a module here; a key that no table has is looked up in the command's.
"""

from __future__ import annotations

from importlib import import_module
from string import Formatter
from typing import Any

from hai_tui.cli.messages import TEXTS, language

TABLES = ("frame", "tasks", "task", "wizard", "logs", "resources", "cluster", "submit", "usage",
          "containers")  # fmt: skip
"""Modules of this package; each has TEXTS: key -> (English, Chinese)."""

_TEXTS: dict[str, tuple[str, str]] = {
    **TEXTS,
    **{k: v for name in TABLES for k, v in import_module(f"{__name__}.{name}").TEXTS.items()},
}


def text(key: str, /, **values: object) -> str:
    """The sentence of that key in the user's language."""
    sentence = _TEXTS[key][language() == "zh"]
    return _SENTENCES.vformat(sentence, (), values) if values else sentence


def known(key: str) -> bool:
    """True when some table has that key."""
    return key in _TEXTS


class _Sentences(Formatter):
    """`{count:node|nodes}` becomes `1 node`, `2 nodes`."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        one, counts, many = format_spec.partition("|")
        if not counts:
            return super().format_field(value, format_spec)
        return f"{value} {one if str(value) == '1' else many}"


_SENTENCES = _Sentences()

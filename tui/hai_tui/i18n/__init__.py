"""Messages of the `hai` command and of the terminal app in English and Chinese.

The environment chooses the language: HAI_LANG, else LC_ALL, LC_MESSAGES or LANG. A value that begins with zh means
Chinese, any other means English.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from string import Formatter
from typing import Any

SCREEN_TABLES = ("frame", "columns", "tasks", "task", "logs", "resources", "cluster", "submit")
"""Modules of this package with messages of the terminal app. Each has TEXTS: key -> (English, Chinese)."""

_VARIABLES = ("HAI_LANG", "LC_ALL", "LC_MESSAGES", "LANG")


def language() -> str:
    """Return zh or en, as the environment says."""
    chosen = next((os.environ[v] for v in _VARIABLES if os.environ.get(v)), "")
    return "zh" if chosen.lower().startswith("zh") else "en"


def text(key: str, /, **values: object) -> str:
    """Return the message of that key in the user's language."""
    translations = _table("cli").get(key) or _screen_texts()[key]
    message = translations[language() == "zh"]
    return _FORMATTER.vformat(message, (), values) if values else message


def exists(key: str) -> bool:
    """Return True if a table has that key."""
    return key in _table("cli") or key in _screen_texts()


@cache
def _table(name: str) -> dict[str, tuple[str, str]]:
    texts: dict[str, tuple[str, str]] = import_module(f"{__name__}.{name}").TEXTS
    return texts


@cache
def _screen_texts() -> dict[str, tuple[str, str]]:
    """Return the messages of the terminal app, which the commands do not load."""
    return {key: texts for name in SCREEN_TABLES for key, texts in _table(name).items()}


class _PluralFormatter(Formatter):
    """`{count:node|nodes}` becomes `1 node`, `2 nodes`."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        singular, has_plural, plural = format_spec.partition("|")
        if not has_plural:
            return super().format_field(value, format_spec)
        return f"{value} {singular if str(value) == '1' else plural}"


_FORMATTER = _PluralFormatter()

"""Tables of messages: each key occurs once, and both languages use the same variables."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from string import Formatter

import pytest

from hai_tui.i18n import SCREEN_TABLES, exists
from hai_tui.page_registry import PAGES

TABLES = {name: import_module(f"hai_tui.i18n.{name}").TEXTS for name in ("cli", *SCREEN_TABLES)}


def fields(message: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(message) if name}


def test_each_key_is_in_one_table() -> None:
    keys = Counter(key for table in TABLES.values() for key in table)
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("name", TABLES)
def test_translations_have_the_same_variables(name: str) -> None:
    assert [k for k, (en, zh) in TABLES[name].items() if fields(en) != fields(zh)] == []


def test_every_page_has_a_title_and_a_description() -> None:
    keys = [f"page.{page.name}{part}" for page in PAGES for part in ("", ".about")]
    assert [key for key in keys if not exists(key)] == []

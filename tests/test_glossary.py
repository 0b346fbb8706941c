"""The Chinese texts of the command, the terminal app and JupyterLab use the terms of docs/glossary.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.markdown_tables import tables

ROOT = Path(__file__).parents[1]
TEXTS = [*(ROOT / "tui/hai_tui/i18n").glob("*.py"), ROOT / "jupyter_ext/src/model/zh.ts"]
OTHER_WORDS = {"suspend": ("打断", "暂停"), "cordon": ("停止调度", "隔离"), "node": ("结点",)}
"""Words for a term that texts have used beside that of the glossary."""


@pytest.mark.parametrize("term", OTHER_WORDS)
def test_a_term_has_one_word(term: str) -> None:
    [glossary] = tables(ROOT / "docs/glossary.md")
    [word] = [row[1] for row in glossary.rows if row[0] == term]
    texts = {path.name: path.read_text() for path in TEXTS}
    assert any(word in text for text in texts.values())
    used = {
        (name, other)
        for name, text in texts.items()
        for other in OTHER_WORDS[term]
        if other in text
    }
    assert used == set()

"""The front end's own tests, run by node, and rules for its sources."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hai.client.text import state_style
from hai.client.text.state_style import StateStyle

FRONT = Path(__file__).parents[2] / "jupyter_ext"
SOURCES = [*FRONT.glob("src/**/*.ts"), *FRONT.glob("src/**/*.tsx")]
_SAID = re.compile(
    r"""\btranslate\(\s*'((?:[^'\\]|\\.)+)'|\b(?:label|text|placeholder)[:=]\s*'((?:[^'\\]|\\.)+)'"""
)
_TABLE = re.compile(r"^\s*(?:'((?:[^'\\]|\\.)+)'|(\w+)):", re.MULTILINE)


@pytest.mark.skipif(
    not (shutil.which("node") and (FRONT / "node_modules").exists()),
    reason="node, or what jupyter_ext/labextension.py installs, is missing",
)
def test_the_model_passes_its_tests() -> None:
    tsc = ["node", "node_modules/typescript/bin/tsc", "-p", "tsconfig.test.json"]
    compiled = subprocess.run(tsc, cwd=FRONT, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stdout
    tested = subprocess.run(
        ["node", "--test", "build/test/"], cwd=FRONT, capture_output=True, text=True
    )
    assert tested.returncode == 0, tested.stdout


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write"]
)
def test_text_is_only_ever_text(word: str) -> None:
    """dangerouslySetInnerHTML is found too."""
    assert [str(path) for path in SOURCES if word.lower() in path.read_text().lower()] == []


def test_names_are_told_in_filled_sentences_or_in_elements_of_their_own() -> None:
    """In a sentence joined by hand, a name with right-to-left characters could reorder the rest."""
    told = re.compile(r"Notification\.\w+\(\s*`|showErrorMessage\(|showDialog\(\{[^}]*`")
    assert [str(path) for path in SOURCES if told.search(path.read_text())] == []
    style = (FRONT / "style" / "base.css").read_text()
    assert re.search(r"\.hai-panel \*,\s*\.hai-page \* \{\s*unicode-bidi: isolate;", style)


def test_colours_come_from_labs_theme() -> None:
    style = (FRONT / "style" / "base.css").read_text()
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(", style) == []


def test_states_look_as_in_the_terminal_app() -> None:
    table = (FRONT / "src" / "model" / "state_style.ts").read_text()
    styles = re.findall(r"(\w+)(?:: | = |: StateStyle = )\{ glyph: '(.)', tone: '(\w+)' \}", table)
    extra = {"SILENT": state_style.SILENT, "UNKNOWN": state_style.UNKNOWN}
    expected = {**state_style.STATE_STYLES, **extra}
    assert {name: StateStyle(glyph, tone) for name, glyph, tone in styles} == expected
    style_sheet = (FRONT / "style" / "base.css").read_text()
    tones = {style.tone for style in expected.values()} - {"plain"}
    assert tones == {tone for tone in tones if f".hai-tone-{tone}" in style_sheet}


def test_all_that_is_said_has_a_translation() -> None:
    table = (FRONT / "src" / "model" / "zh.ts").read_text()
    known = {a or b for a, b in _TABLE.findall(table)}
    said = {a or b for path in SOURCES for a, b in _SAID.findall(path.read_text())}
    shown = {text for text in said if " " in text or text[0].isupper()}
    assert sorted(shown - known) == []

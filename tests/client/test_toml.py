"""Tests that toml files are read as Python reads them, and that documents that would need gigabytes are refused."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from hai.toml import loads

LONG = ".".join("a" * 40)
values = st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())


@given(table=st.dictionaries(st.text(), values))
def test_files_written_by_haienv_are_read(table: dict[str, Any]) -> None:
    text = tomli_w.dumps(table)
    assert loads(text) == tomllib.loads(text) == table


@pytest.mark.parametrize(
    "text", ["# it's mine\nx = 1\n", f"x = '{LONG}' # {LONG}\n", 'x = "\\""\n']
)
def test_files_written_by_people_are_read(text: str) -> None:
    assert loads(text) == tomllib.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{LONG} = 1\n", id="a key"),
        pytest.param(" . ".join(['"a b"', "'c'"] * 20) + " = 1\n", id="quoted"),
        pytest.param(f"[{LONG}]\n", id="a table"),
        pytest.param(f"x = {{ y = 'z', {LONG} = 1 }}\n", id="within a table"),
        pytest.param(f"x = {{ y = '''\n' ''', {LONG} = 1, z = '' }}\n", id="behind several lines"),
        pytest.param(
            f'x = {{ y = """\n\' """, {LONG} = 1, z = \'\' }}\n', id="behind other quotes"
        ),
        pytest.param('"' + '\\"' * 100_000, id="a text without an end"),
        pytest.param("x = " + "9" * 5000, id="an endless number"),
        pytest.param("x = " + "[" * 100_000, id="nesting"),
    ],
)
def test_expensive_documents_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        loads(text)

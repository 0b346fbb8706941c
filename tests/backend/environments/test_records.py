"""The server and haienv read records by the same rules: both report the same records as broken."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.environments import records as server_records
from hai_backend.environments.records import BrokenEnvironment
from haienv.store import records

Table = Mapping[str, Any]
_DAY = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
LABEL: Table = {
    "schema": 1,
    "visibility": "public",
    "group": "",
    "description": "for all",
    "tags": ["cuda"],
    "deprecated": "",
    "created": _DAY,
    "updated": _DAY,
    "previous": "0" * 24,
    "config": {},
}
CONFIG: Table = {
    "search_dirs": ["/a b"],
    "bin_dirs": [],
    "hooks": ["echo 'a b'"],
    "variables": {"A": "x"},
}
LAYER: Table = {
    "schema": 1,
    "lock_hash": "0" * 64,
    "python": "3.11.9",
    "interpreter": "/usr/bin/python3.11",
    "platform": "linux-x86_64",
    "libc": "glibc 2.36",
    "cuda": "12.4",
    "backend": "uv",
    "wanted": ["numpy>=2"],
    "editable": ["/my project"],
    "sites": ["/opt/site-packages"],
    "packages": 3,
    "size_bytes": 1234,
    "created": _DAY,
    "parents": [],
}
PARENT: Table = {"name": "base", "owner": "bob", "layer": "1" * 24, "lock_hash": "2" * 64}
IMAGE: Table = {
    "schema": 1,
    "sha256": "0" * 64,
    "size_bytes": 5,
    "unpacked_bytes": 9,
    "files": 2,
}
TABLES: Mapping[str, tuple[Table, Callable[[Table], Table]]] = {
    "label": (LABEL, dict),
    "config": (CONFIG, lambda table: {**LABEL, "config": table}),
    "layer": (LAYER, dict),
    "parent": (PARENT, lambda table: {**LAYER, "parents": [table]}),
    "image": (IMAGE, dict),
}
READERS: Mapping[str, tuple[Callable[[str], object], Callable[[str], object]]] = {
    "label": (records.parse_metadata, server_records.parse_metadata),
    "layer": (records.parse_layer, server_records.parse_layer),
    "image": (records.parse_image, server_records.parse_image),
}
KINDS = {"config": "label", "parent": "layer"}
VALUES = [
    *("", "x", "/x", "/x:y", "x\ty", "/x\u2028", "x" * 5000, "0" * 24, "0" * 64, "3.11", "private"),
    *(0, -1, 1 << 61, True, 1.5, _DAY, datetime.datetime(1, 1, 1), datetime.date(2026, 1, 1)),
    *([], ["x"], ["/x"], ["/x:y"], ["x\ty"], [1], [["x"]], ["'"], [" "], ["x" * 5000], ["/x"] * 10_001),
    *({}, {"A": "x"}, {"A": 1}, {"A": "x\n"}, {"1A": "x"}, {"PATH": "x"}, {"A": "x" * 70_000}),
]  # fmt: skip


def _is_readable(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except (records.MalformedRecord, BrokenEnvironment):
        return False
    return True


@pytest.mark.parametrize("table_name", TABLES)
def test_haienv_and_the_server_read_valid_records(table_name: str) -> None:
    table, embed = TABLES[table_name]
    text = tomli_w.dumps(dict(embed(table)))
    assert all(_is_readable(read, text) for read in READERS[KINDS.get(table_name, table_name)])


@pytest.mark.parametrize(
    ("table_name", "key"),
    [(table_name, key) for table_name, (table, _) in TABLES.items() for key in table],
)
def test_haienv_and_the_server_reject_the_same_values(table_name: str, key: str) -> None:
    table, embed = TABLES[table_name]
    read_haienv, read_server = READERS[KINDS.get(table_name, table_name)]
    for value in VALUES:
        text = tomli_w.dumps(dict(embed({**table, key: value})))
        assert _is_readable(read_server, text) == _is_readable(read_haienv, text), (key, value)
    without = tomli_w.dumps(dict(embed({k: v for k, v in table.items() if k != key})))
    assert _is_readable(read_server, without) == _is_readable(read_haienv, without), key


@given(st.sampled_from(sorted(READERS)), st.text(max_size=60))
def test_haienv_and_the_server_treat_random_text_alike(kind: str, text: str) -> None:
    read_haienv, read_server = READERS[kind]
    assert _is_readable(read_server, text) == _is_readable(read_haienv, text)

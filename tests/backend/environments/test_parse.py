"""The server and haienv read the same records by the same rules: what one calls broken, the other does."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.environments import parse
from hai_backend.environments.errors import BrokenEnvironment
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
    "label": (records.parse_metadata, parse.metadata),
    "layer": (records.parse_layer, parse.layer),
    "image": (records.parse_image, parse.image),
}
KINDS = {"config": "label", "parent": "layer"}
VALUES = [
    *("", "x", "/x", "/x:y", "x\ty", "/x\u2028", "x" * 5000, "0" * 24, "0" * 64, "3.11", "private"),
    *(0, -1, 1 << 61, True, 1.5, _DAY, datetime.datetime(1, 1, 1), datetime.date(2026, 1, 1)),
    *([], ["x"], ["/x"], ["/x:y"], ["x\ty"], [1], [["x"]], ["'"], [" "], ["x" * 5000], ["/x"] * 10_001),
    *({}, {"A": "x"}, {"A": 1}, {"A": "x\n"}, {"1A": "x"}, {"PATH": "x"}, {"A": "x" * 70_000}),
]  # fmt: skip


def _readable(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except (records.MalformedRecord, BrokenEnvironment):
        return False
    return True


@pytest.mark.parametrize("table_name", TABLES)
def test_a_whole_record_is_read_by_both(table_name: str) -> None:
    table, around = TABLES[table_name]
    text = tomli_w.dumps(dict(around(table)))
    assert all(_readable(read, text) for read in READERS[KINDS.get(table_name, table_name)])


@pytest.mark.parametrize(
    ("table_name", "key"),
    [(table_name, key) for table_name, (table, _) in TABLES.items() for key in table],
)
def test_what_one_does_not_read_the_other_does_not(table_name: str, key: str) -> None:
    table, around = TABLES[table_name]
    theirs, ours = READERS[KINDS.get(table_name, table_name)]
    for value in VALUES:
        text = tomli_w.dumps(dict(around({**table, key: value})))
        assert _readable(ours, text) == _readable(theirs, text), (key, value)
    without = tomli_w.dumps(dict(around({k: v for k, v in table.items() if k != key})))
    assert _readable(ours, without) == _readable(theirs, without), key


@given(st.sampled_from(sorted(READERS)), st.text(max_size=60))
def test_what_is_no_record_is_read_by_neither(kind: str, text: str) -> None:
    theirs, ours = READERS[kind]
    assert _readable(ours, text) == _readable(theirs, text)

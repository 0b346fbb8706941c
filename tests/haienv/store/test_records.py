"""haienv and the server accept and refuse the same values in env.toml and layer.toml."""

from __future__ import annotations

import pytest

from hai_backend.environments import records
from hai_backend.environments.records import BrokenEnvironment
from haienv.store.records import MalformedRecord, parse_layer, parse_metadata

HASH, LAYER = "a" * 64, "b" * 24
METADATA = {
    "schema": "1",
    "visibility": "'group'",
    "group": "'vision'",
    "description": "'d'",
    "deprecated": "''",
    "created": "2026-11-21T23:50:00Z",
    "updated": "2026-11-21T23:50:00Z",
    "config": "{search_dirs = ['/a b'], variables = {A = '1'}}",
}
LAYER_FIELDS = {
    "schema": "1",
    "lock_hash": f"'{HASH}'",
    "python": "'3.11.9'",
    "interpreter": "'/usr/bin/python3'",
    "platform": "'linux-x86_64'",
    "wanted": "['x']",
    "packages": "3",
    "size_bytes": "5",
    "parents": f"[{{name='a', owner='b', layer='{LAYER}', lock_hash='{HASH}'}}]",
}
VALUES = [
    *("", "true", "0", "1", "2", "-1", "1.5", "9223372036854775807", "inf"),
    *("''", "'x'", "'private'", "'PRIVATE'", "'Group'", "'/x'", "'3'", "'3.11'", "'3.11.9rc1'"),
    *(
        "'3.11.9+'",
        "'３.11.9'",
        "'abc'",
        f"'{HASH.upper()}'",
        "'全　角'",
        '"a\\tb"',
        '"\\u001b[31m"',
    ),
    *("[]", "[1]", "['x']", "['/x']", "['/x:y']", "['/全　角']", '["a\\tb"]', "[[]]", "[{}]", "{}"),
    *(f"'{'x' * 4096}'", f"'{'x' * 4097}'", f"['{'x' * 4097}']", "{a = 1}", "{a = 'x'}"),
    *("2026-11-21", "2026-11-21T23:50:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59-12:00"),
    *("{search_dirs = ['a']}", "{bin_dirs = ['/a:b']}", "{variables = []}", "{unknown = 1}"),
    *("{variables = {PATH = 'x'}}", "{variables = {PYTHONPATH = 'x'}}", "{variables = {PS1 = ''}}"),
    *("{variables = {HF_ENV_LOCK = 'x'}}", "{variables = {_HAIENV_X = 'x'}}"),
    *('{variables = {A = "\\r"}}', '{variables = {A = "\\u001b"}}', "{variables = {'A B' = 'x'}}"),
    "{variables = {" + ", ".join(f"A{n} = ''" for n in range(10_001)) + "}}",
]


def text(table: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in table.items() if value)


@pytest.mark.parametrize("key", METADATA)
def test_metadata_fields(key: str) -> None:
    for value in VALUES:
        _require_same_answer(text({**METADATA, key: value}), parse_metadata, records.parse_metadata)


@pytest.mark.parametrize("key", [key for key in LAYER_FIELDS if key != "interpreter"])
def test_layer_fields(key: str) -> None:
    for value in VALUES:
        _require_same_answer(text({**LAYER_FIELDS, key: value}), parse_layer, records.parse_layer)


def _require_same_answer(record: str, haienv_parser: object, server_parser: object) -> None:
    answers = []
    for parse_record in (haienv_parser, server_parser):
        try:
            parse_record(record)  # type: ignore[operator]
            answers.append("")
        except (MalformedRecord, BrokenEnvironment) as error:
            answers.append(str(error))
    assert bool(answers[0]) == bool(answers[1]), (record[-500:], answers)

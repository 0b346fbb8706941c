"""Specs of tasks are read as they were written, also by other versions of the server."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.spec import (
    OptionsSpec,
    PolicySpec,
    ProgramSpec,
    ResourceSpec,
    RoleSpec,
    ServiceSpec,
    ServiceType,
    TaskSpec,
)
from hai_backend.store.sql.convert import dump_spec, load_spec

PLAIN = TaskSpec(
    "t",
    ProgramSpec("a.py"),
    services=(ServiceSpec("tb", ServiceType.HTTP, 80),),
    roles=(RoleSpec("w", 2),),
)


def _is_valid(spec: TaskSpec) -> bool:
    """Return whether all numbers are finite. Validation accepts only finite numbers, because JSON has no others."""
    return math.isfinite(spec.options.ack_within + spec.options.save_within)


@given(st.from_type(TaskSpec).filter(_is_valid))
def test_a_written_spec_is_read_unchanged(spec: TaskSpec) -> None:
    assert load_spec(dump_spec(spec)) == spec


def test_every_field_is_written_as_readable_text() -> None:
    text = dump_spec(TaskSpec("训练", ProgramSpec("a.py")))
    data = json.loads(text)
    assert "训练" in text
    assert set(data) == {f.name for f in fields(TaskSpec)}
    for part, kind in (("options", OptionsSpec), ("resource", ResourceSpec), ("spec", ProgramSpec)):
        assert set(data[part]) == {f.name for f in fields(kind)}


@pytest.mark.parametrize(
    "part", ["", "spec", "resource", "options", "policies", "services", "roles"]
)
def test_keys_of_a_newer_version_are_skipped(part: str) -> None:
    data = json.loads(dump_spec(PLAIN))
    objects = data[part] if part in ("services", "roles") else [data[part] if part else data]
    for json_object in objects:
        json_object["invented_later"] = {"x": [1]}
    assert load_spec(json.dumps(data)) == PLAIN


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("options", "env_fallback"),
        ("resource", "zone"),
        ("policies", "min_available"),
        ("", "policies"),
        ("", "roles"),
    ],
)
def test_keys_that_an_older_version_lacks_take_their_defaults(part: str, key: str) -> None:
    spec = TaskSpec("t", ProgramSpec("a.py"), policies=PolicySpec())
    data = json.loads(dump_spec(spec))
    del (data[part] if part else data)[key]
    assert load_spec(json.dumps(data)) == spec

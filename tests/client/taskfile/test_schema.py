"""Tests that the shipped JSON Schema is current and agrees with read_spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from hai.client.errors import Invalid
from hai.client.taskfile import fields, schema
from hai.client.taskfile.spec import read_spec

HEAD = "version: 2\nname: a\nspec: {entrypoint: a.py}\n"
DOCS = Path(__file__).parents[3] / "docs" / "task-schema.md"


def test_the_shipped_schema_is_current() -> None:
    assert schema.render() == schema.FILE.read_text("utf-8"), (
        "run python -m hai.client.taskfile.schema"
    )
    Draft202012Validator.check_schema(schema.json_schema())


def test_every_field_is_described() -> None:
    def bare(part: Any, path: str) -> list[str]:
        inner = part.get("properties", {})
        return [f"{path}.{name}" for name, field in inner.items() if not field["description"]]

    whole = schema.json_schema()
    assert bare(whole, "") + [p for n, d in whole["$defs"].items() for p in bare(d, n)] == []


def test_options_without_effect_are_described_as_such() -> None:
    options = schema.json_schema()["$defs"]["OptionsSpec"]["properties"].items()
    documented = {name for name, field in options if "has no effect" in field["description"]}
    assert documented == fields.WITHOUT_EFFECT


def test_the_manual_names_every_field() -> None:
    text = DOCS.read_text("utf-8")
    assert [path for path in fields.paths() if f"`{path}`" not in text] == []


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        pytest.param(HEAD, True, id="least"),
        pytest.param("version: 2\nspec: {}\n", False, id="no name"),
        pytest.param("version: 1\nname: a\nspec: {}\n", False, id="old version"),
        pytest.param("version: 2\nname: a\nspec:\n", False, id="empty spec"),
        pytest.param("[]", False, id="a list"),
        pytest.param(HEAD + "x: 1", False, id="unknown key"),
        pytest.param(HEAD + "options: {x: 1}", False, id="unknown inner key"),
        pytest.param(HEAD + "options:\nservices:\npriority:", True, id="null: not given"),
        pytest.param(HEAD + "priority: high", True, id="priority by name"),
        pytest.param(HEAD + "priority: 30", True, id="priority by number"),
        pytest.param(HEAD + "priority: hgh", False, id="unknown priority"),
        pytest.param(HEAD + "priority: 1.5", False, id="fractional priority"),
        pytest.param(HEAD + "task_type: jupyter", True, id="task type"),
        pytest.param(HEAD + "task_type: x", False, id="unknown task type"),
        *(
            pytest.param(HEAD + f"task_type: {word}", False, id=f"unsupported type {word}")
            for word in fields.REFUSED_TASK_TYPES
        ),
        pytest.param(HEAD + "resource: {node_count: 3}", True, id="number"),
        pytest.param(HEAD + "resource: {node_count: '3'}", False, id="text for a number"),
        pytest.param(HEAD + "resource: {node_count: true}", False, id="boolean for a number"),
        pytest.param(HEAD + "resource: {gpu: 4294967296}", False, id="too large"),
        pytest.param(HEAD + "resource: []", False, id="list for a mapping"),
        pytest.param(HEAD + "resource: {is_spot: 1}", False, id="number for a boolean"),
        pytest.param(HEAD + "options: {tags: 'a,b'}", True, id="tags as text"),
        pytest.param(HEAD + "options: {tags: [a, b]}", True, id="tags as a list"),
        pytest.param(HEAD + "options: {tags: {a: 1}}", False, id="tags as a mapping"),
        pytest.param(HEAD + "options: {sidecar: a}", False, id="text for another list"),
        pytest.param(HEAD + "options: {time_limit: 2h30m}", True, id="duration"),
        pytest.param(HEAD + "options: {time_limit: 1-02:00:00}", True, id="days and clock"),
        pytest.param(HEAD + "options: {time_limit: 90}", True, id="seconds"),
        pytest.param(HEAD + "options: {time_limit: soon}", False, id="no duration"),
        pytest.param(HEAD + "options: {time_limit: ''}", False, id="empty duration"),
        pytest.param(HEAD + "options: {save_within: 1.5}", True, id="fraction"),
        pytest.param(HEAD + "options: {save_within: x}", False, id="text for a fraction"),
        pytest.param(HEAD + "options: {py_venv: 202111}", True, id="number as text"),
        pytest.param(HEAD + "options: {py_venv: true}", False, id="boolean as text"),
        pytest.param(HEAD + "options: {suspend_signal: SIGUSR1}", True, id="signal"),
        pytest.param(HEAD + "options: {suspend_signal: SIGKILL}", False, id="wrong signal"),
        pytest.param(HEAD + "options: {profile: {interval: {a: 1}}}", True, id="map of numbers"),
        pytest.param(HEAD + "options: {profile: {interval: {a: x}}}", False, id="map of text"),
        pytest.param(
            HEAD + "roles: [{name: a, count: 1, parameters: [1, true, x]}]", True, id="words"
        ),
        pytest.param(
            HEAD + "roles: [{name: a, count: 1, environments: {A: 1, B: true}}]",
            True,
            id="variables",
        ),
        pytest.param(
            HEAD + "roles: [{name: a, count: 1, environments: {A: [1]}}]",
            False,
            id="list as a variable",
        ),
        pytest.param(
            HEAD + "roles: [{name: a, count: 1, environments: {A: }}]",
            False,
            id="null as a variable",
        ),
        pytest.param(HEAD + "roles: [null]", False, id="null in a list"),
        pytest.param(HEAD + "services: [{name: a, type: udp}]", False, id="unknown service type"),
        pytest.param(HEAD + "policies: {on_pod_failed: ignore}", True, id="policy"),
        pytest.param(HEAD + "policies: {on_pod_failed: panic}", False, id="unknown policy"),
    ],
)
def test_the_schema_and_the_reader_agree(text: str, accepted: bool) -> None:
    assert Draft202012Validator(schema.json_schema()).is_valid(yaml.safe_load(text)) is accepted
    if accepted:
        read_spec(text)
    else:
        with pytest.raises(Invalid):
            read_spec(text)

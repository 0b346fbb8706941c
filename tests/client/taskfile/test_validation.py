"""Tests of the validator: each field at its limits, and agreement with the JSON schema for editors."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hai.client.errors import Invalid
from hai.client.taskfile import fields, schema
from hai.client.taskfile.spec import read_spec
from hai.client.taskfile.spec_reader import SpecReader
from hai.client.taskfile.tree import from_python
from hai.client.taskfile.validation import limits, violations
from hai.client.taskfile.validation.conditions import check_conditions, single_violations
from hai.client.taskfile.validation.rules import RULES
from hai.client.taskfile.validation.violations import Violations
from hai.v1.task_spec_pb2 import TaskSpec

EDITOR = Draft202012Validator(schema.json_schema())
LEAST: dict[str, Any] = {"version": 2, "name": "a", "spec": {"entrypoint": "a.py"}}
ENTRIES: dict[str, Any] = {
    "services": {"name": "web", "type": "http", "port": 80},
    "roles": {"name": "worker", "count": 1},
    "after": {"task": 1},
}
"""The minimal entries of lists of mappings."""


def document(path: str, value: object) -> dict[str, Any]:
    """Return a valid task file with this value at this path. `...` removes the field."""
    made = copy.deepcopy(LEAST)
    at, keys = made, path.split(".")
    for key in keys[:-1]:
        name = key.removesuffix("[]")
        inner = copy.deepcopy(ENTRIES[name]) if key != name else at.get(name, {})
        at[name] = [inner] if key != name else inner
        at = inner
    at[keys[-1]] = value
    if value is ...:
        del at[keys[-1]]
    return made


def violations_of(made: dict[str, Any]) -> dict[str, str]:
    """Return the violations of a task file by path."""
    try:
        read_spec(made)
    except Invalid as error:
        return {each.field: each.message for each in error.violations}
    return {}


LIMITS = [
    # field, valid values, invalid values, the message about the invalid ones
    ("version", [2], [0, 1, 3, -2, 2**31 - 1], "must be 2"),
    ("name", ["a", "a b", "任务", "x" * 511, 7, 1.5, "-"], ["a(", ")b", "a\nb", "a\tb", "\u202ea", "a\0"], "parenth"),
    ("name", ["x" * 511], ["x" * 512], "at most 511"),
    ("name", [], ["", " ", "\t\n", "\u3000"], "is required"),
    ("task_type", ["training", "jupyter"], ["Training", " training", "train"], "must be one of training, jupyter"),
    ("priority", [50, 40, 30, 20, 10, 8, 5, 0, -1], [1, 51, -2, 2**31 - 1, -(2**31)], "is no priority; there are"),
    ("priority", ["high", "AUTO", "Low"], ["hi", "", " HIGH", "30"], "no priority is called"),
    ("spec.entrypoint", ["a.py", "dir/b.sh", "ä.py", "a b.py"], ["a", "a.PY", ".py", "a/.sh", "a.py "], "must end in"),
    ("spec.entrypoint", [], ["", "  "], "is required"),
    ("spec.entrypoint", [], ["-a.py", "--.sh", "a\0.py"], "hyphen"),
    ("spec.entrypoint", ["a" * 2042 + ".py"], ["a" * 2045 + ".py"], "at most 2047"),
    ("spec.workspace", ["", "/a", "/ä", "a/../b", "/" + "a" * 254], ["/a b", "a\tb", " ", "/a\0"], "no blanks"),
    ("spec.workspace", ["/" + "a" * 254], ["/" + "a" * 255], "at most 255"),
    ("spec.workspace", ["haiworkspace://a", "haiworkspace://a@3/b/c", "haiworkspace://a@v1"],
     ["haiworkspace://", "haiworkspace://a@", "haiworkspace://a/../b", "haiworkspace://a b"], "haiworkspace://NAME"),
    ("spec.parameters", [[], ["", " ", "ü", "-x", 1, 1.5, True]], [["a\0"]], "NUL"),
    ("spec.environments", [{"A": ""}, {"_a1": "x y"}, {"A": 1, "B": True}],
     [{"": ""}, {"1A": ""}, {"A-B": ""}, {"Ä": ""}, {"A B": ""}, {"HAI_RANK_KEY": ""}, {"A\n": ""}], "variable's name"),
    ("spec.environments", [{"A": "x" * 131069}], [{"A": "x" * 131070}], "more than a program can receive"),
    ("spec.git_remote_repo", ["", "https://x/y", "git@x:y.git"], ["-x", "ext::sh", "https://x/ y"], "address of a git"),
    ("resource.image", ["", "default", "Img_1.2", "reg/x", "reg.io:5000/a/b:v1", "localhost/x"],
     ["a b", "-a", "ü", "Reg/X", "https://x/y", "u@reg/x", "a//b", "reg/x:", "reg/x@sha256:1"], "an image name"),
    ("resource.group", ["", "default", "a#b", "A.b_c-d", "x" * 63],
     ["#a", "a#", "a b", "-a", "a#b#c", "x" * 64], "group#"),
    ("resource.node_count", [1, 10_000], [0, -1, 10_001, 2**31 - 1, -(2**31)], "must be from 1 to 10000"),
    ("resource.gpu", [0, 1, 1024], [-1, 1025, 2**31 - 1], "must be from 0 to 1024"),
    ("resource.cpu", [0, 4096], [-1, 4097], "must be from 0 to 4096"),
    ("resource.memory", [0, 1_000_000], [-1, 1_000_001], "must be from 0 to 1000000"),
    ("resource.is_spot", [False], [True], "dev containers only"),
    ("services[].name", ["a", "a-b", "0", 7, "x" * 63], ["A", "-a", "a-", "a_b", "ü", " ", "x" * 64], ""),
    ("services[].port", [1, 65_535], [-1, 65_536, 2**31 - 1], "must be from 1 to 65535"),
    ("services[].port", [], [0, ..., None], "is required: from 1 to 65535"),
    ("services[].type", ["http", "tcp"], ["udp", "HTTP"], "must be one of http, tcp, local"),
    ("services[].type", [], [..., None], "is required: http, tcp or local"),
    ("services[].type", [], ["local"], "may not be set for a local service"),
    ("services[].rank", [[], [0]], [[1], [0, 1]], "must be [0] unless"),
    ("services[].rank", [], [[-1], [10_000]], "must be from 0 to 9999"),
    ("services[].startup_script", ["", "run --x 'a b'"], ["a; b", "a\nb", "a\0"], "one command"),
    ("options.whole_life_state", [0, -(2**63), 2**63 - 1], [2**63, -(2**63) - 1], "must be from -92233720368547758"),
    ("options.mount_code", [0, 2, 2**31 - 1], [-1, -(2**31)], "must be from 0"),
    ("options.py_venv", ["", "base", "a[bob]", 202111, 1.5],
     ["a b", "a[", "[bob]", "-a", "a[Bob]", "ü"], "name[owner]"),
    ("options.tags", [[], ["a", "ü", "a=b", 7]], [["_a"], ["a b"], [""], ["a,b"], ["a\u202e"]], "a word without"),
    ("options.tags", ["a, b", ""], ["a, _b"], "a word without blanks"),
    ("options.tags", [["x" * 64], [f"t{i}" for i in range(64)]],
     [["x" * 65], [f"t{i}" for i in range(65)]], "at most 64"),
    ("options.watchdog_time", [0, limits.SECONDS], [-1, limits.SECONDS + 1], "must be from 0"),
    ("options.timeout", [0, "1d", "1-00:00:00", "366d"], [-1, "367d", limits.SECONDS + 1], "must be from 0"),
    ("options.time_limit", [0, "90m"], [-1, 2**62], "must be from 0"),
    ("options.time_limit", [], ["soon", "-5", "1:60:00", "", "1w", " 90m"], "must be a duration"),
    ("options.max_retries", [0, 1000], [-1, 1001], "must be from 0 to 1000"),
    ("options.suspend_signal", ["", "SIGTERM", "SIGUSR1"], ["SIGKILL", "TERM", "sigterm"], "one of SIGTERM, SIGUSR1"),
    ("options.ack_within", [0.001, 1, 300], [0, -1, 300.1], "more than 0 and at most 300"),
    ("options.save_within", [0.5, 3600], [0, -0.5, 3601], "more than 0 and at most 3600"),
    ("options.idle_timeout", [0], [1], "dev containers only"),
    ("options.assigned_nodes", [[], ["n1", "n2"]], [["n1", "n1"]], "names a node twice"),
    ("options.sidecar", [["a-b"]], [["A"], [""], ["a b"]], "at most 63 of a-z"),
    ("options.after[].task", [1, 2**63 - 1], [0, -1], "must be from 1"),
    ("options.after[].outcome", ["succeeded", "failed", "ended"], ["success"], "did you mean succeeded?"),
    ("options.after", [[{"task": i} for i in range(1, 1001)]], [[{"task": i} for i in range(1, 1002)]], "at most 1000"),
    ("options.after", [], [[{"task": 1}, {"task": 1}]], "names a task twice"),
    ("options.profile.interval", [{"gpu": 1}], [{"gpu": 0}, {"gpu": -1}], "must be from 1"),
    ("options.override_node_resource.cpu", [0, 4096], [-1, 4097], "must be from 0 to 4096"),
    ("roles[].name", ["a", "worker-1"], ["A", "a-", "ü"], "at most 63 of a-z"),
    ("roles[].count", [1, 10_000], [0, -1, 10_001], "must be from 1 to 10000"),
    ("roles[].entrypoint", ["", "b.sh"], ["b", "-b.py"], ""),
    ("roles", [[]], [[{"name": "a", "count": 6000}, {"name": "b", "count": 6000}]], "at most 10000"),
    ("roles", [], [[{"name": "a", "count": 1}, {"name": "a", "count": 1}]], "'a' is given twice"),
    ("policies.on_pod_failed", ["restart", "complete", "fail", "ignore"], ["panic", "Fail"], "must be one of restart"),
    ("policies.min_available", [0, 1], [2, -1, 10_001], "must be from 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "right", "wrong", "message"),
    [pytest.param(*case, id=f"{case[0]}: {case[3]}") for case in LIMITS],
)
def test_each_field_is_checked_at_its_limits(
    path: str, right: list[object], wrong: list[object], message: str
) -> None:
    assert {repr(value): violations_of(document(path, value)) for value in right} == {
        repr(value): {} for value in right
    }
    for value in wrong:
        found = violations_of(document(path, value))
        assert len(found) == 1, (value, found)
        [(where, what)] = found.items()
        assert where.startswith(path.split("[]")[0]), (value, found)
        assert message in what, (value, found)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        pytest.param("options: {tagz: [a]}", "options.tagz", "did you mean tags?", id="misspelt"),
        pytest.param("gpu: 1", "gpu", "it belongs at resource.gpu", id="in the wrong place"),
        pytest.param("resource: {gpu: '1'}", "resource.gpu", "not the text '1'", id="text"),
        pytest.param("resource: {gpu: true}", "resource.gpu", "not the boolean true", id="boolean"),
        pytest.param("resource: {gpu: 1.5}", "resource.gpu", "not the number 1.5", id="fraction"),
        pytest.param("resource: {gpu: [1]}", "resource.gpu", "not a list", id="list"),
        pytest.param("resource: {gpu: {a: 1}}", "resource.gpu", "not a mapping", id="mapping"),
        pytest.param(
            "resource: {gpu: 2147483648}",
            "resource.gpu",
            "must be from 0 to 1024, not 2147483648",
            id="2**31",
        ),
        pytest.param("options: {py_venv: true}", "options.py_venv", "put it in quotes", id="yes"),
        pytest.param("services: [null]", "services[0]", "not nothing", id="null in a list"),
    ],
)
def test_unreadable_values_are_reported_with_the_allowed_ones(
    text: str, path: str, message: str
) -> None:
    found = violations_of({**LEAST, **yaml.safe_load(text)})
    assert list(found) == [path]
    assert message in found[path]


def test_unreadable_and_invalid_values_are_reported_together_with_positions() -> None:
    text = """\
version: 2
name: x(
spec: {entrypoint: train, environments: {1A: x}}
resource: {node_count: 0, gpu: many}
services:
  - {name: web, type: http}
roles: [{name: a, count: 2}]
"""
    with pytest.raises(Invalid) as caught:
        read_spec(text)
    assert [(v.field, v.line) for v in caught.value.violations] == [
        ("name", 2),
        ("spec.entrypoint", 3),
        ("spec.environments[1A]", 3),
        ("resource.node_count", 4),
        ("resource.gpu", 4),
        ("services[0].port", 6),
    ]


COMBINATIONS = [
    ({"spec.git_remote_repo": "https://x/y", "spec.workspace": "/a"}, "spec.workspace", "leave one out"),
    ({"spec.git_target_revision": "main"}, "spec.git_target_revision", "needs spec.git_remote_repo"),
    ({"spec.parameters": ["x" * 2047]}, "spec.parameters", "together have 2053 characters"),
    ({"spec.entrypoint_executable": True, "spec.entrypoint": "prog"}, "", ""),
    ({"task_type": "jupyter", "resource.is_spot": True, "options.lifetime": 60}, "", ""),
    ({"services": [{"name": "jupyter"}]}, "", ""),
    ({"services": [{"name": "jupyter", "port": 80}]}, "services[0].port", "built in"),
    ({"services": [{"name": "ssh"}]}, "services[0].name", "ssh is not built in"),
    ({"services": [{"name": "w", "type": "local", "rank": [1]}]}, "services[0].rank", "from 0 to 0"),
    ({"services": [{"name": "w", "type": "local", "rank": [1]}], "resource.node_count": 2}, "", ""),
    ({"services": [{"name": "w", "type": "local", "rewrite_uri": True}]}, "services[0].rewrite_uri", "http"),
    ({"services": [{"name": "a", "type": "tcp", "port": 8888}, {"name": "jupyter"}]}, "services[1].port", "taken"),
    ({"services": [{"name": "w", "type": "local", "startup_script": "a 'b"}]}, "services[0].startup_script", "command"),
    ({"roles": [{"name": "a", "count": 2}], "resource.node_count": 3}, "roles", "have 2 ranks together"),
    ({"roles": [{"name": "a", "count": 2}], "policies.min_available": 2}, "", ""),
    ({"options.record_git_revision": True, "spec.git_remote_repo": "x"}, "options.record_git_revision", "excludes"),
    ({"spec.workspace": "haiworkspace://a/e\u0301"}, "spec.workspace", "normal form NFC"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "path", "message"),
    [
        pytest.param(*case, id=f"{case[1] or 'right'}: {' + '.join(case[0])}")
        for case in COMBINATIONS
    ],
)
def test_conditions_between_fields_are_checked(
    values: dict[str, Any], path: str, message: str
) -> None:
    made = copy.deepcopy(LEAST)
    for key, value in values.items():
        outer, _, name = key.rpartition(".")
        (made.setdefault(outer, {}) if outer else made)[name] = value
    found = violations_of(made)
    assert list(found) == ([path] if path else [])
    assert message in found.get(path, "")


POOL: list[Any] = [
    ..., None, True, False, -(2**63) - 1, -1, 0, 1, 2, 8, 30, 300, 301, 3600, 3601, 65_535, 65_536, 2**31 - 1,
    2**31, 2**63 - 1, 2**63, 0.5, 1.5, "", " ", "a", "A", "7", "a-b", "-a", "a b", "a\n", "a\tb", "a\0", "ü", "_a",
    "a(b", "\u202ea", "a.py", "a/b:v1", "a#b", "a::b", "2h30m", "high", "http", "local", "jupyter", "training",
    "SIGUSR1", "ended", "fail", "x" * 64, "x" * 600, "haiworkspace://a@1/b", "haiworkspace://a/..", "reg.io/A",
    [], [0], [1], [1, 1], ["a"], [""], ["a", "a"], ["a b"], {}, {"A": "b"}, {"1": "b"}, {"A": 0}, [{}], [None],
]  # fmt: skip
TEXT_OR_LIST = fields.SHELL_SPLIT | fields.COMMA_SPLIT


def valid_by_field(made: dict[str, Any]) -> bool:
    """Return whether single fields and conditions are valid, without combinations of values."""
    reader, spec = SpecReader(), TaskSpec()
    reader.read_message(spec, from_python(made), "")
    found = Violations([*reader.violations, *single_violations(spec)])
    check_conditions(spec, found)
    return not list(found)


def scalar_paths() -> Iterator[tuple[str, FieldDescriptor]]:
    def walk(message: Any, prefix: str) -> Iterator[tuple[str, FieldDescriptor]]:
        for field in message.fields:
            yield f"{prefix}{field.name}", field
            if field.message_type is not None and not fields.is_map(field):
                mark = "[]." if field.is_repeated else "."
                yield from walk(field.message_type, f"{prefix}{field.name}{mark}")

    return walk(TaskSpec.DESCRIPTOR, "")


FIELDS = dict(scalar_paths())


@pytest.mark.parametrize("path", FIELDS)
def test_the_schema_for_editors_accepts_what_the_validator_accepts(path: str) -> None:
    # a schema cannot express how a text is split
    words = fields.field_key(FIELDS[path]) in TEXT_OR_LIST
    pool = [value for value in POOL if not (words and isinstance(value, str))]
    made = [document(path, value) for value in pool]
    differ = [
        value
        for value, each in zip(pool, made, strict=True)
        if EDITOR.is_valid(each) != valid_by_field(each)
    ]
    assert differ == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(FIELDS)), st.sampled_from(POOL)), min_size=2, max_size=4
    )
)
def test_the_schema_and_the_validator_agree_on_several_fields(
    changes: list[tuple[str, Any]],
) -> None:
    made = copy.deepcopy(LEAST)
    for path, value in changes:
        if fields.field_key(FIELDS[path]) in TEXT_OR_LIST and isinstance(value, str):
            continue
        _merge(made, document(path, value))
    assert EDITOR.is_valid(made) == valid_by_field(made)


def _merge(made: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            _merge(made[key], value)
        elif key not in LEAST or value != LEAST[key]:
            made[key] = value


FREE = {
    "OptionsSpec.whole_life_state",  # any integer is valid
    "OptionsSpec.assigned_nodes",  # only the server knows its nodes
}


def test_every_text_and_number_of_the_contract_has_a_rule() -> None:
    plain = {
        fields.field_key(field)
        for field in FIELDS.values()
        if field.message_type is None and field.type != FieldDescriptor.TYPE_BOOL
    }
    maps = {fields.field_key(field) for field in FIELDS.values() if fields.is_map(field)}
    assert set(RULES) == (plain | maps) - FREE


def test_a_large_spec_is_one_violation() -> None:
    spec = read_spec(LEAST)
    spec.spec.parameters.extend(["x" * 1000] * 300)
    [found] = violations(spec)
    assert found.field == ""
    assert "at most 262144" in found.message


def test_the_time_for_many_violations_is_linear() -> None:
    spec = read_spec(LEAST)
    spec.spec.parameters.extend(["\0"] * 80_000)
    assert len(violations(spec)) == 80_001  # the length of the command also counts

"""Tests of task files in yaml: reading, violations with positions, and writing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hai.client.errors import Invalid, UsageError
from hai.client.taskfile import fields
from hai.client.taskfile.spec import apply_option, read_documents, read_spec, to_yaml
from hai.client.taskfile.tree import MAX_BYTES
from hai.v1.task_spec_pb2 import TaskSpec

HEAD = "version: 2\nname: a\nspec: {entrypoint: a.py}\n"

FULL = """\
version: 2
name: bert
task_type: training
priority: HIGH
spec:
  workspace: /data/bert
  entrypoint: train.py
  parameters: --lr 1e-3 --note 'a b; $(x)'
  environments: {LR: 1.10, DEBUG: yes, EMPTY: '', NO: "a\\nb"}
resource: {image: default, group: default#a, node_count: 1}
services:
  - {name: jupyter}
  - {name: web, type: http, port: 8080, rank: [0], rewrite_uri: true}
options:
  tags: sweep, big
  py_venv: 202111
  time_limit: 2h30m
  timeout: 1-02:00:00
  profile: {time: 3, interval: {gpu: 5}}
  save_within: 7
roles:
  - {name: master, count: 1, parameters: [a b, 3, true]}
policies: {on_pod_failed: restart}
"""


def test_reads_every_kind_of_field() -> None:
    spec = read_spec(FULL)
    assert (spec.version, spec.name, spec.priority) == (2, "bert", 30)
    assert list(spec.spec.parameters) == ["--lr", "1e-3", "--note", "a b; $(x)"]
    assert dict(spec.spec.environments) == {
        "LR": "1.10",
        "DEBUG": "yes",
        "EMPTY": "",
        "NO": "a\nb",
    }
    assert (spec.resource.group, spec.resource.node_count) == ("default#a", 1)
    assert [(s.name, s.port, list(s.rank)) for s in spec.services] == [
        ("jupyter", 0, []),
        ("web", 8080, [0]),
    ]
    assert list(spec.options.tags) == ["sweep", "big"]
    assert spec.options.py_venv == "202111"
    assert (spec.options.time_limit, spec.options.timeout) == (9000, 93600)
    assert dict(spec.options.profile.interval) == {"gpu": 5}
    assert spec.options.save_within == 7.0
    assert list(spec.roles[0].parameters) == ["a b", "3", "true"]
    assert spec.policies.on_pod_failed == "restart"


def test_all_kinds_of_sources_give_the_same_spec(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    mapping = {"version": 2, "name": "a", "spec": {"entrypoint": "a.py"}}
    sources = [path, str(path), HEAD, mapping, io.StringIO(HEAD), io.BytesIO(HEAD.encode())]
    assert all(read_spec(source) == read_spec(HEAD) for source in sources)


def test_anchors_and_merges_are_followed() -> None:
    spec = read_spec(
        HEAD
        + "services:\n  - &web {name: a, type: http, port: 1}\n  - {<<: *web, name: b, port: 2}\n"
    )
    assert [(s.name, s.port) for s in spec.services] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("priorty: 3", ("priorty", 4, 1, "did you mean priority"), id="unknown key"),
        pytest.param(
            "resource:\n  node_cout: 3",
            ("resource.node_cout", 5, 3, "did you mean node_count"),
            id="unknown inner key",
        ),
        pytest.param(
            "node_count: 3",
            ("node_count", 4, 1, "belongs at resource.node_count"),
            id="key in the wrong place",
        ),
        pytest.param("zzz: 3", ("zzz", 4, 1, "known are version"), id="nothing like it"),
        pytest.param(
            "priority: hgh", ("priority", 4, 11, "did you mean HIGH"), id="unknown priority"
        ),
        pytest.param(
            "task_type: trainig", ("task_type", 4, 12, "did you mean training"), id="unknown word"
        ),
        pytest.param(
            "task_type: background",
            ("task_type", 4, 12, "not supported: a task here always has its nodes to itself"),
            id="a type that means nothing here",
        ),
        pytest.param(
            "resource: {node_count: '4'}",
            ("resource.node_count", 4, 24, "a whole number, not the text '4'"),
            id="text for a number",
        ),
        pytest.param(
            "resource: {node_count: 4.5}",
            ("resource.node_count", 4, 24, "a whole number"),
            id="fraction for a number",
        ),
        pytest.param(
            "resource: {node_count: yes}",
            ("resource.node_count", 4, 24, "a whole number"),
            id="boolean for a number",
        ),
        pytest.param(
            "resource: {gpu: 3000000000}", ("resource.gpu", 4, 17, "from 0 to 1024"), id="too large"
        ),
        pytest.param("resource: 4", ("resource", 4, 11, "a mapping of keys"), id="not a mapping"),
        pytest.param("services: {a: 1}", ("services", 4, 11, "a list"), id="not a list"),
        pytest.param(
            "services: [{name: a, type: local, prt: 1}]",
            ("services[0].prt", 4, 35, "did you mean port"),
            id="inside a list",
        ),
        pytest.param(
            "options: {py_venv: yes}", ("options.py_venv", 4, 20, "in quotes"), id="boolean as text"
        ),
        pytest.param(
            "options: {time_limit: 2 weeks}",
            ("options.time_limit", 4, 23, "duration"),
            id="no duration",
        ),
        pytest.param(
            "options: {env_fallback: 'yes'}",
            ("options.env_fallback", 4, 25, "true or false"),
            id="text for a boolean",
        ),
        pytest.param(
            "options: {save_within: .nan}", ("options.save_within", 4, 24, "finite"), id="nan"
        ),
        pytest.param(
            'roles: [{name: a, count: 1, parameters: "a \'b"}]',
            ("roles[0].parameters", 4, 41, "closing quotation"),
            id="open quote",
        ),
        pytest.param("name: b", ("name", 4, 1, "given twice, first in line 2"), id="duplicate key"),
        pytest.param(
            "resource: {gpu: 1, gpu: 1}",
            ("resource.gpu", 4, 20, "given twice"),
            id="inner duplicate key",
        ),
        pytest.param(
            "options: !!python/object/apply:os.system [ls]",
            ("", 4, 10, "tag"),
            id="object tag",
        ),
        pytest.param("options: !secret x", ("", 4, 10, "tag"), id="own tag"),
        pytest.param("? [a, b]\n: 1", ("", 4, 3, "a key must be a word"), id="list as a key"),
        pytest.param("options: {a: *b}", ("", 4, 14, "undefined alias"), id="unknown alias"),
        pytest.param("options: [", ("", 4, 11, "not valid yaml"), id="syntax"),
        pytest.param('options: "\x01"', ("", 4, 11, "U+0001"), id="control character"),
        pytest.param("--- {}\n", ("", 4, 1, "single document"), id="two documents"),
    ],
)
def test_violations_have_path_line_and_column(text: str, expected: tuple[Any, ...]) -> None:
    with pytest.raises(Invalid) as caught:
        read_spec(HEAD + text)
    [violation] = caught.value.violations
    assert (violation.field, violation.line, violation.column) == expected[:3]
    assert expected[3] in violation.message


def test_violations_in_several_documents_have_their_lines() -> None:
    one = "version: 2\nname: {}\nspec: {{entrypoint: t.py}}\n"
    several = f"---\n{one.format('a')}--- # empty\n---\n{one.format('b')}---\n"
    assert [each.spec.name for each in read_documents(io.StringIO(several))] == ["a", "b"]
    wrong = f"{one.format('a')}---\n{one.format('b')}nope: 1\n"
    found = [v for each in read_documents(io.StringIO(wrong)) for v in each.violations()]
    assert [(v.field, v.line) for v in found] == [("nope", 8)]
    [empty] = read_documents(io.StringIO(""))
    assert "name" in [v.field for v in empty.violations()]


def test_every_violation_is_reported_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        read_spec("version: 1\nresource: {gpu: x}\nservices: 3\nnope: 1\n")
    paths = [v.field for v in caught.value.violations]
    assert paths == ["name", "spec", "version", "resource.gpu", "services", "nope"]
    assert "line 2, column 17" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 5000, id="deep list"),
        pytest.param("{a: " * 5000, id="deep mapping"),
        pytest.param("a" * (MAX_BYTES + 1), id="large"),
        pytest.param(
            "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)),
            id="aliases that explode",
        ),
        pytest.param("a: &a [*a]", id="alias of itself"),
        pytest.param("a: &a {<<: *a}", id="merge of itself"),
    ],
)
def test_documents_that_expand_without_bound_are_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_spec(text)
    assert len(caught.value.violations) == 1


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml"):
        read_spec(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("90s", 90),
        ("90m", 5400),
        ("2h30m", 9000),
        ("1d", 86400),
        ("1:30:00", 5400),
        ("90:00", 5400),
        ("1-00:00:01", 86401),
        ("", None),
        ("h", None),
        ("30m2h", None),
        ("1:60:00", None),
        ("-5", None),
        ("\u0663", None),
    ],
)
def test_durations_are_parsed(text: str, expected: int | None) -> None:
    assert fields.parse_duration(text) == expected


@pytest.mark.parametrize(
    ("assignment", "path", "expected"),
    [
        pytest.param("options.py_venv=base[bob]", "options.py_venv", "base[bob]", id="text"),
        pytest.param("options.py_venv=a=b: c", "options.py_venv", "a=b: c", id="text with signs"),
        pytest.param("options.profile.time=3", "options.profile.time", 3, id="nested number"),
        pytest.param("options.time_limit=90m", "options.time_limit", 5400, id="duration"),
        pytest.param("options.tags=x, y", "options.tags", ["x", "y"], id="commas"),
        pytest.param("options.assigned_nodes=[a, b]", "options.assigned_nodes", ["a", "b"], id="[]"),
        pytest.param("options.tags=[x, y]", "options.tags", ["x", "y"], id="a list for commas"),
        pytest.param("spec.parameters=-a 'b c'", "spec.parameters", ["-a", "b c"], id="shell words"),
        pytest.param(
            "spec.parameters=[-a, 'b c']", "spec.parameters", ["-a", "b c"], id="a list for words"
        ),
        pytest.param("spec.environments.A.B= [x=1]", "spec.environments", {"A.B": " [x=1]"}, id="map"),
        pytest.param("options.profile.interval.gpu=5", "options.profile.interval", {"gpu": 5}, id="ints"),
        pytest.param("priority=high", "priority", 30, id="priority"),
        pytest.param("options.max_retries=0", "options.max_retries", 0, id="zero"),
        pytest.param("options.max_retries=", "options.max_retries", 0, id="unset"),
    ],
)  # fmt: skip
def test_an_option_sets_its_field(assignment: str, path: str, expected: object) -> None:
    spec = read_spec(HEAD + "options: {max_retries: 3, tags: old}")
    apply_option(spec, assignment)
    value: Any = spec
    for key in path.split("."):
        value = getattr(value, key)
    if isinstance(expected, list):
        value = list(value)
    elif isinstance(expected, dict):
        value = dict(value)
    assert value == expected


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        pytest.param("options.py_vnv=x", "did you mean py_venv", id="unknown option"),
        pytest.param("option.py_venv=x", "did you mean options", id="unknown room"),
        pytest.param("options.max_retries=x", "a whole number", id="wrong type"),
        pytest.param("options.tags.x=1", "no parts", id="parts of a list"),
        pytest.param("options.profile.trace=[", "not valid yaml", id="syntax"),
    ],
)
def test_an_invalid_option_changes_nothing(assignment: str, words: str) -> None:
    spec = read_spec(HEAD)
    with pytest.raises(Invalid, match=words):
        apply_option(spec, assignment)
    assert spec == read_spec(HEAD)
    with pytest.raises(UsageError, match="no value"):
        apply_option(spec, "options.tags")


def messages(message: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Generate any values for any fields of a message, as keyword arguments."""
    return st.fixed_dictionaries({}, optional={f.name: values(f) for f in message.fields})


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if fields.is_map(field):
        return st.dictionaries(texts, single(fields.map_value_field(field)), max_size=3)
    return st.lists(single(field), max_size=3) if field.is_repeated else single(field)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "1.10",
        "yes",
        "null",
        "~",
        "a: b",
        "- x",
        "#",
        "'",
        '"',
        "\r\n",
        "\x85",
        "\ufeff",
        "1:30",
        "=",
    ]
)


def single(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    key = fields.field_key(field)
    if field.message_type is not None:
        return messages(field.message_type)
    if key in fields.ENUMS:
        return st.sampled_from(fields.ENUMS[key])
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return texts
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_DOUBLE:
            return st.floats(allow_nan=False, allow_infinity=False)
        case FieldDescriptor.TYPE_INT64:
            return st.integers(-(2**63), 2**63 - 1)
    return st.integers(-(2**31), 2**31 - 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages(TaskSpec.DESCRIPTOR))
def test_a_written_spec_is_read_back(values: dict[str, Any]) -> None:
    spec = TaskSpec(**{**values, "version": 2})
    spec.spec.SetInParent()
    assert read_spec(to_yaml(spec), rules=False) == spec

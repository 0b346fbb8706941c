"""Every rule of a submission, with one named case each: the path and text of the violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hai.client.taskfile.validation import violations
from hai.client.taskfile.validation.rules import RULES
from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.nodes.group_capacity import GroupCapacity
from hai_backend.api.request import limits
from hai_backend.api.tasks.convert_spec import spec_to_proto
from hai_backend.api.tasks.validation.fit import SubmitContext
from hai_backend.api.tasks.validation.validate import validate
from hai_backend.domain.catalog.image import parse_image
from hai_backend.domain.errors import Exhausted, Invalid
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow
from hai_backend.domain.spec import OnEnd, ServiceType, TaskType
from hai_backend.domain.workspace import parse_reference
from hai_backend.scheduler.policy.policy import Policy

NODES = [Node(f"n{i}", zone="a" if i < 2 else "b", gpus=8) for i in range(4)]
SMALL = [Node(f"s{i}", group="small", gpus=8, cpus=64, memory_bytes=256 << 30) for i in range(2)]
MIXED = [Node("m0", group="mixed", zone="a", gpus=1), Node("m1", group="mixed", zone="b")]
CAPACITY = {
    "cpu": GroupCapacity("cpu", False, [Node("c0", group="cpu")]),
    "default": GroupCapacity("default", False, NODES),
    "mixed": GroupCapacity("mixed", False, MIXED),
    "small": GroupCapacity("small", True, SMALL),
}


def context(rights: tuple[str, ...] = (), **more: Any) -> SubmitContext:
    return SubmitContext("ada", CAPACITY, lambda right: right in rights, **more)


def spec(text: str = "") -> pb.TaskSpec:
    """Return a valid spec, changed by a text in the text format of protobuf."""
    made = pb.TaskSpec(version=2, name="t")
    made.spec.entrypoint = "train.py"
    text_format.Merge(text, made)
    return made


def broken(given: pb.TaskSpec, judged_by: SubmitContext | None = None) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        validate(given, judged_by or context())
    return {v.field: v.message for v in caught.value.violations}


LONG = "x" * 600
SERVICE = 'name: "web" type: "http" port: 80'
CASES = [
    # text, path, message
    ("version: 1", "version", "must be 2, not 1"),
    ('name: ""', "name", "is required"),
    ('name: "  "', "name", "is required"),
    ('name: "a(b"', "name", "parentheses"),
    ('name: "a)"', "name", "parentheses"),
    (f'name: "{LONG}"', "name", "at most 511"),
    (r'name: "a\033[2J"', "name", "control characters"),
    (r'name: "a\nb"', "name", "control characters"),
    ('name: "gpj.\u202eexe"', "name", "control characters"),
    (r'name: "a\000b"', "name", "control characters"),
    (
        'task_type: "trainin"',
        "task_type",
        "must be one of training, jupyter; did you mean training?",
    ),
    ('task_type: "virtual"', "task_type", "virtual is not supported: every task here runs"),
    ('task_type: "validation"', "task_type", "name nodes in options.assigned_nodes"),
    ('task_type: "background"', "task_type", "leave task_type out, and ask for priority LOW"),
    ('task_type: "upgrade"', "task_type", "HAI itself has replaced it"),
    ("priority: 33", "priority", "33 is no priority"),
    ("priority: -2", "priority", "-2 is no priority"),
    ('spec { entrypoint: "" }', "spec.entrypoint", "is required"),
    ('spec { entrypoint: "prog" }', "spec.entrypoint", "must end in .py or .sh"),
    ('spec { entrypoint: "-c.py" }', "spec.entrypoint", "hyphen"),
    (r'spec { entrypoint: "a\000.py" }', "spec.entrypoint", "NUL"),
    ('spec { workspace: "/a b" }', "spec.workspace", "blanks"),
    (r'spec { workspace: "/a\tb" }', "spec.workspace", "blanks"),
    (f'spec {{ workspace: "/{LONG}" }}', "spec.workspace", "at most 255"),
    (r'spec { workspace: "/a\000" }', "spec.workspace", "NUL"),
    (f'spec {{ parameters: "{LONG * 4}" }}', "spec.parameters", "at most 2047"),
    (r'spec { parameters: "ok" parameters: "a\000b" }', "spec.parameters[1]", "NUL"),
    (
        'spec { environments { key: "1A" value: "x" } }',
        "spec.environments[1A]",
        "a variable's name",
    ),
    (
        'spec { environments { key: "A-B" value: "x" } }',
        "spec.environments[A-B]",
        "a variable's name",
    ),
    ('spec { environments { key: "" value: "x" } }', "spec.environments[]", "a variable's name"),
    (
        'spec { environments { key: "A=B" value: "x" } }',
        "spec.environments[A=B]",
        "a variable's name",
    ),
    (r'spec { environments { key: "A" value: "\000" } }', "spec.environments[A]", "NUL"),
    (
        'spec { environments { key: "HAI_CONTROL_FILE" value: "x" } }',
        "spec.environments[HAI_CONTROL_FILE]",
        "set by the platform",
    ),
    (
        f'spec {{ environments {{ key: "A" value: "{"x" * 131072}" }} }}',
        "spec.environments[A]",
        "longer than",
    ),
    (
        'spec { workspace: "/a" git_remote_repo: "https://x/y" }',
        "spec.workspace",
        "excludes spec.git_remote_repo",
    ),
    (
        'spec { git_remote_repo: "--upload-pack=x" }',
        "spec.git_remote_repo",
        "address of a git repository",
    ),
    ('spec { git_remote_repo: "ext::sh" }', "spec.git_remote_repo", "address of a git repository"),
    (
        'spec { git_target_revision: "main" }',
        "spec.git_target_revision",
        "needs spec.git_remote_repo",
    ),
    (
        'spec { git_remote_repo: "https://x/y" git_target_revision: "-x" }',
        "spec.git_target_revision",
        "branch, tag or commit",
    ),
    ('resource { image: "a b" }', "resource.image", "image name"),
    (f'resource {{ image: "{LONG}" }}', "resource.image", "at most 255"),
    ('resource { group: "#a" }', "resource.group", "group#zone"),
    ('resource { group: "default#" }', "resource.group", "group#zone"),
    ('resource { group: "defualt" }', "resource.group", "did you mean default?"),
    ('resource { group: "default#c" }', "resource.group", "no zone 'c'; it has a, b"),
    ('resource { group: "default#a b" }', "resource.group", "both are at most 63 letters"),
    ("resource { node_count: 0 }", "resource.node_count", "from 1 to"),
    ("resource { node_count: -1 }", "resource.node_count", "from 1 to"),
    ("resource { node_count: 2000000 }", "resource.node_count", "from 1 to 10000"),
    (
        "resource { node_count: 5 }",
        "resource.node_count",
        "asks for 5 nodes; group default has room for 4",
    ),
    (
        'resource { group: "default#a" node_count: 3 }',
        "resource.node_count",
        "group default#a has room for 2",
    ),
    ("options { after { } }", "options.after[0].task", "from 1"),
    (
        'options { after { task: 1 outcome: "success" } }',
        "options.after[0].outcome",
        "one of succeeded, failed, ended; did you mean succeeded?",
    ),
    ("options { after { task: 1 } after { task: 1 } }", "options.after", "names a task twice"),
    ("options {" + "after { task: 1 }" * 1001 + "}", "options.after", "at most 1000"),
    ("resource { is_spot: true }", "resource.is_spot", "dev containers"),
    ("resource { gpu: -1 }", "resource.gpu", "from 0"),
    ("resource { cpu: -1 }", "resource.cpu", "from 0"),
    ("resource { memory: -1 }", "resource.memory", "from 0"),
    ("resource { cpu: 1 }", "resource.cpu", "given whole"),
    ("resource { memory: 1 }", "resource.memory", "given whole"),
    (
        "resource { gpu: 9 }",
        "resource.gpu",
        "asks for 9 GPUs on each node; the nodes of group default have at most 8; no group has a node with so many",
    ),
    (
        'resource { group: "small" gpu: 9 }',
        "resource.gpu",
        "the nodes of group small have at most 8",
    ),
    (
        'resource { group: "cpu" gpu: 1 }',
        "resource.gpu",
        "asks for 1 GPU on each node; the nodes of group cpu have none; choose group default, mixed, small",
    ),
    (
        'resource { group: "mixed#b" gpu: 1 }',
        "resource.gpu",
        "the nodes of group mixed#b have none; choose group default, mixed, small",
    ),
    (
        'resource { group: "mixed" gpu: 1 node_count: 2 }',
        "resource.node_count",
        "asks for 2 nodes with 1 GPU each; group mixed has room for 1",
    ),
    ('services { name: "Web" type: "http" port: 80 }', "services[0].name", "a-z, 0-9"),
    ('services { name: "-w" type: "http" port: 80 }', "services[0].name", "a-z, 0-9"),
    (
        'services { name: "web" type: "udp" port: 80 }',
        "services[0].type",
        "one of http, tcp, local",
    ),
    ('services { name: "web" port: 80 }', "services[0].type", "is required"),
    ('services { name: "web" type: "http" }', "services[0].port", "from 1 to 65535"),
    ('services { name: "web" type: "tcp" port: 65536 }', "services[0].port", "from 1 to 65535"),
    ('services { name: "web" type: "local" port: 80 }', "services[0].port", "local"),
    (
        f'services {{ {SERVICE} }} services {{ name: "w" type: "tcp" port: 80 }}',
        "services[1].port",
        "taken",
    ),
    (
        f'services {{ {SERVICE} }} services {{ name: "web" type: "tcp" port: 81 }}',
        "services[1].name",
        "given twice",
    ),
    ('roles { name: "a" count: 6000 } roles { name: "b" count: 6000 }', "roles", "at most 10000"),
    (f"services {{ {SERVICE} rank: 1 }}", "services[0].rank", "must be [0]"),
    ('services { name: "w" type: "local" rank: 1 }', "services[0].rank", "from 0 to 0"),
    ('services { name: "w" type: "local" rank: 0 rank: 0 }', "services[0].rank", "twice"),
    (
        f'services {{ {SERVICE} startup_script: "a; b" }}',
        "services[0].startup_script",
        "one command",
    ),
    (
        rf'services {{ {SERVICE} startup_script: "a\nb" }}',
        "services[0].startup_script",
        "one command",
    ),
    (
        f'services {{ {SERVICE} startup_script: "echo it\'s" }}',
        "services[0].startup_script",
        "is no command: no closing quotation",
    ),
    (
        'services { name: "w" type: "tcp" port: 1 rewrite_uri: true }',
        "services[0].rewrite_uri",
        "http services only",
    ),
    ('services { name: "jupyter" port: 80 }', "services[0].port", "built in"),
    (
        'services { name: "ssh" }',
        "services[0].name",
        "ssh is not built in: nothing here starts an sshd",
    ),
    ('services { name: "jupyter" startup_script: "x" }', "services[0].startup_script", "built in"),
    ('options { tags: "ok" tags: "_mine" }', "options.tags[1]", "underscore"),
    (r'options { tags: "a\302\2332Jb" }', "options.tags[0]", "control characters"),
    ('options { tags: "a\u202eb" }', "options.tags[0]", "control characters"),
    ('options { tags: "a,b" }', "options.tags[0]", "commas"),
    ('options { tags: "a b" }', "options.tags[0]", "blanks"),
    ('options { tags: "" }', "options.tags[0]", "must be a word"),
    (f'options {{ tags: "{LONG}" }}', "options.tags[0]", "at most 64"),
    ("options { mount_code: -1 }", "options.mount_code", "from 0"),
    ("options { watchdog_time: -1 }", "options.watchdog_time", "from 0"),
    ("options { timeout: -1 }", "options.timeout", "from 0"),
    ("options { time_limit: -1 }", "options.time_limit", "from 0"),
    ("options { max_retries: -1 }", "options.max_retries", "from 0 to 1000"),
    ("options { max_retries: 1001 }", "options.max_retries", "from 0 to 1000"),
    ('options { suspend_signal: "SIGKILL" }', "options.suspend_signal", "SIGTERM, SIGUSR1"),
    ("options { ack_within: 301 }", "options.ack_within", "at most 300"),
    ("options { ack_within: 0 }", "options.ack_within", "more than 0"),
    ("options { ack_within: nan }", "options.ack_within", "more than 0"),
    ("options { save_within: inf }", "options.save_within", "at most 3600"),
    ('options { py_venv: "a b" }', "options.py_venv", "name[owner]"),
    ('options { py_venv: "a[b" }', "options.py_venv", "name[owner]"),
    ('options { py_venv: "../x" }', "options.py_venv", "name[owner]"),
    (
        "options { override_node_resource { cpu: -1 } }",
        "options.override_node_resource.cpu",
        "from 0",
    ),
    ("options { profile { time: -1 } }", "options.profile.time", "from 0"),
    (
        'options { profile { interval { key: "gpu" value: 0 } } }',
        "options.profile.interval[gpu]",
        "from 1",
    ),
    (
        'spec { git_remote_repo: "https://x/y" } options { record_git_revision: true }',
        "options.record_git_revision",
        "excludes",
    ),
    ('options { assigned_nodes: "n0" }', "options.assigned_nodes", "lacks the right assign_nodes"),
    ('options { sidecar: "A b" }', "options.sidecar[0]", "a-z, 0-9"),
    ('roles { name: "A" count: 1 }', "roles[0].name", "a-z, 0-9"),
    ('roles { name: "a" count: 0 }', "roles[0].count", "from 1"),
    ('roles { name: "a" count: 1 } roles { name: "a" count: 1 }', "roles[1].name", "given twice"),
    ('resource { node_count: 3 } roles { name: "a" count: 2 }', "roles", "have 2 ranks together"),
    ('roles { name: "a" count: 1 entrypoint: "x" }', "roles[0].entrypoint", "must end in .py"),
    ('roles { name: "a" count: 1 gpu: 1 }', "roles[0].gpu", "which is 0; leave it out"),
    ('roles { name: "a" count: 1 gpu: -1 }', "roles[0].gpu", "from 0"),
    (
        'resource { group: "small" gpu: 1 } roles { name: "a" count: 1 gpu: 2 }',
        "roles[0].gpu",
        "is 2, but every rank gets resource.gpu, which is 1; leave it out",
    ),
    (
        'resource { group: "small" gpu: 1 } roles { name: "a" count: 1 cpu: 4 }',
        "roles[0].cpu",
        "every rank gets resource.cpu, which is 0",
    ),
    (
        'resource { group: "small" memory: 9 } roles { name: "a" count: 1 memory: 8 }',
        "roles[0].memory",
        "every rank gets resource.memory, which is 9",
    ),
    (
        'roles { name: "a" count: 1 environments { key: "1" value: "" } }',
        "roles[0].environments[1]",
        "a variable's name",
    ),
    ('policies { on_pod_failed: "explode" }', "policies.on_pod_failed", "one of restart, complete"),
    ('policies { on_pod_evicted: "x" }', "policies.on_pod_evicted", "one of"),
    ('policies { on_role_completed: "x" }', "policies.on_role_completed", "one of"),
    ("policies { min_available: 2 }", "policies.min_available", "from 0 to 1"),
]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [pytest.param(*case, id=f"{case[1]}: {case[2]} #{i}") for i, case in enumerate(CASES)],
)
def test_broken_rule_is_named_with_its_path(text: str, path: str, message: str) -> None:
    every_service = ("custom_service:http:*", "custom_service:tcp:*", "custom_service:local:*")
    found = broken(spec(text), context(every_service))
    assert set(found) == {path}
    assert message in found[path]


def test_all_violations_are_reported_together() -> None:
    text = 'version: 1 name: "" priority: 3 resource { node_count: 0 } options { tags: "_x" ack_within: 0 }'
    found = broken(spec(text))
    assert set(found) == {
        "version",
        "name",
        "priority",
        "resource.node_count",
        "options.tags[0]",
        "options.ack_within",
    }


def test_defaults_are_filled_in() -> None:
    made = validate(spec(), context())
    assert made.task_type is TaskType.TRAINING
    assert made.priority is Priority.AUTO
    assert (made.resource.group, made.resource.zone, made.resource.node_count) == ("default", "", 1)
    assert (made.resource.image, made.options.mount_code, made.options.watchdog_time) == (
        "default",
        2,
        1800,
    )
    assert made.policies.on_pod_evicted is OnEnd.RESTART


def test_group_and_zone_are_split() -> None:
    assert validate(spec('resource { group: "default#b" }'), context()).resource.zone == "b"


@pytest.mark.parametrize("value", ["a b", '"', "$(x)", ";", "a\nb", "'", "\\", "ü", "-x", ""])
def test_any_value_reaches_the_program_unchanged(value: str) -> None:
    given = spec()
    given.spec.parameters.append(value)
    given.spec.environments["A"] = value
    made = validate(given, context())
    assert made.spec.parameters == (value,)
    assert made.spec.environments == {"A": value}


def test_built_in_and_permitted_services_are_valid() -> None:
    text = (
        'services { name: "jupyter" } services { name: "ssh" type: "tcp" port: 22 } '
        'services { name: "web" type: "http" port: 80 }'
    )
    made = validate(spec(text), context(("custom_service:http:80", "custom_service:tcp:*")))
    assert [(s.name, s.type, s.port) for s in made.services] == [
        ("jupyter", ServiceType.HTTP, 8888),
        ("ssh", ServiceType.TCP, 22),
        ("web", ServiceType.HTTP, 80),
    ]
    assert "lacks the right custom_service:http:80" in broken(spec(text))["services[2]"]


def test_command_that_is_too_long_is_not_read() -> None:
    script = '"' + "x" * limits.COMMAND_CHARS
    with pytest.raises(Invalid) as caught:
        validate(
            spec(f"services {{ {SERVICE} startup_script: '{script}' }}"),
            context(("custom_service:http:80",)),
        )
    assert [v.message for v in caught.value.violations] == [
        "has 2048 characters; at most 2047 are allowed"
    ]


def test_roles_give_the_number_of_nodes() -> None:
    made = validate(spec('roles { name: "m" count: 1 } roles { name: "w" count: 3 }'), context())
    assert made.resource.node_count == 4


def test_assigned_nodes_must_exist_in_group_and_zone_and_number() -> None:
    able = context(("assign_nodes",))
    assert validate(spec('options { assigned_nodes: "n1" }'), able).options.assigned_nodes == (
        "n1",
    )
    found = broken(spec('options { assigned_nodes: "n9" assigned_nodes: "n9" }'), able)
    assert "no node 'n9'" in found["options.assigned_nodes[0]"]
    assert "options.assigned_nodes" in found
    found = broken(spec('resource { group: "default#a" } options { assigned_nodes: "n3" }'), able)
    assert found == {"options.assigned_nodes[0]": "node n3 is not in zone a"}


@pytest.mark.parametrize(
    ("nodes", "hint"),
    [pytest.param(200, "; did you mean n199?", id="few"), pytest.param(201, "", id="many")],
)
def test_similar_names_are_suggested_if_the_search_is_fast(nodes: int, hint: str) -> None:
    group = GroupCapacity("default", False, [Node(f"n{i}", gpus=8) for i in range(nodes)])
    judge = SubmitContext("ada", {"default": group}, lambda right: True)
    names = 'assigned_nodes: "x199" assigned_nodes: "x198"'
    found = broken(spec(f"resource {{ node_count: 2 }} options {{ {names} }}"), judge)
    assert found == {
        "options.assigned_nodes[0]": f"group default has no node 'x199'{hint}",
        "options.assigned_nodes[1]": "group default has no node 'x198'",
    }


ROWS = (QuotaRow("ada", "default", Priority.HIGH, 2), QuotaRow("ada", "default", Priority.AUTO, 3))


@pytest.mark.parametrize(
    ("text", "rows", "policy", "reason"),
    [
        pytest.param(
            "priority: 30 resource { node_count: 2 }", ROWS, Policy(), "", id="fits its level"
        ),
        pytest.param(
            "priority: 30 resource { node_count: 3 }",
            ROWS,
            Policy(),
            "QUOTA_EXCEEDED",
            id="above its level",
        ),
        pytest.param(
            "priority: 0 resource { node_count: 4 }",
            ROWS,
            Policy(),
            "QUOTA_EXCEEDED",
            id="above the total",
        ),
        pytest.param("resource { node_count: 2 }", ROWS, Policy(), "", id="AUTO finds a level"),
        pytest.param(
            "resource { node_count: 4 }", ROWS, Policy(), "QUOTA_EXCEEDED", id="AUTO finds none"
        ),
        pytest.param("resource { node_count: 4 }", (), Policy(), "", id="no rows: unlimited"),
        pytest.param("resource { gpu: 2 }", (), Policy(), "", id="whole nodes with enough GPUs"),
        pytest.param(
            'resource { group: "cpu" gpu: 1 }', (), Policy(), "GROUP_TOO_SMALL", id="no GPUs"
        ),
        pytest.param(
            "priority: 10",
            (),
            Policy(default_quota=0),
            "QUOTA_EXCEEDED",
            id="the default quota counts",
        ),
        pytest.param(
            "resource { node_count: 5 }",
            (),
            Policy(),
            "GROUP_TOO_SMALL",
            id="no such number of nodes",
        ),
        pytest.param('resource { group: "x" }', (), Policy(), "NO_SUCH_GROUP", id="no such group"),
        pytest.param(
            'resource { group: "x" } name: ""', (), Policy(), "INVALID", id="several reasons"
        ),
    ],
)
def test_task_that_can_never_run_is_refused(
    text: str, rows: tuple[QuotaRow, ...], policy: Policy, reason: str
) -> None:
    judged_by = context(quotas=rows, policy=policy)
    if not reason:
        validate(spec(text), judged_by)
        return
    with pytest.raises(Invalid) as caught:
        validate(spec(text), judged_by)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("nodes", "refused"), [(2, False), (3, True)], ids=["fits its user group", "too large for it"]
)
def test_task_larger_than_the_limit_of_its_user_group_is_refused(nodes: int, refused: bool) -> None:
    here = ShareRow("team", "default", frozenset({"ada"}), limit=2)
    elsewhere = ShareRow("team", "small", frozenset({"ada"}), limit=0)
    judged_by, asked = context(shares=(here, elsewhere)), f"resource {{ node_count: {nodes} }}"
    if not refused:
        validate(spec(asked), judged_by)
        return
    with pytest.raises(Invalid, match="user group team may hold 2 in group default") as caught:
        validate(spec(asked), judged_by)
    assert caught.value.reason == "SHARE_EXCEEDED"


def test_parts_of_nodes_share_nodes_of_packed_groups() -> None:
    assert (
        validate(spec('resource { group: "small" gpu: 2 node_count: 8 }'), context()).resource.gpu
        == 2
    )
    found = broken(spec('resource { group: "small" gpu: 2 node_count: 9 }'))
    assert "room for 8" in found["resource.node_count"]


def test_too_many_unfinished_tasks_are_refused() -> None:
    validate(spec(), context(unfinished=limits.UNFINISHED_TASKS - 1))
    with pytest.raises(Exhausted, match="10000 is the limit"):
        validate(spec(), context(unfinished=limits.UNFINISHED_TASKS))


def test_too_long_specs_of_unfinished_tasks_are_refused() -> None:
    given = spec('spec { environments { key: "A" value: "bc" } }')
    validate(given, context(spec_chars=limits.UNFINISHED_SPEC_CHARS - 3))
    with pytest.raises(Exhausted, match="134217728 is the limit"):
        validate(given, context(spec_chars=limits.UNFINISHED_SPEC_CHARS - 2))


def test_predecessors_count_for_the_length_of_specs() -> None:
    given = spec("options { after { task: 1 } after { task: 2 } }")
    validate(given, context(spec_chars=limits.UNFINISHED_SPEC_CHARS - 400))
    with pytest.raises(Exhausted, match="`after`"):
        validate(given, context(spec_chars=limits.UNFINISHED_SPEC_CHARS - 399))


def test_spec_that_is_too_large_is_refused_before_it_is_read() -> None:
    given = spec()
    given.spec.parameters.extend(["x" * 1000] * 300)
    assert "at most 262144" in broken(given)[""]
    with pytest.raises(Invalid, match=r"^the spec has"):
        validate(given, context())


def test_lists_that_are_too_long_are_one_violation() -> None:
    given = spec()
    given.options.tags.extend(f"t{i}" for i in range(1000))
    for i in range(100):
        given.services.add(name=f"s{i}")
        given.roles.add(name=f"r{i}", count=0)
    assert set(broken(given)) == {"options.tags", "services", "roles"}


def _everything() -> pb.TaskSpec:
    text = """
        task_type: "jupyter" priority: 30
        spec { workspace: "/w" parameters: "a b" environments { key: "A" value: "$x" } entrypoint_executable: true }
        resource { image: "reg/x:1" group: "small" node_count: 2 is_spot: true gpu: 1 cpu: 2 memory: 3 }
        services { name: "jupyter" } services { name: "x" type: "local" rank: 1 startup_script: "run" }
        options {
            whole_life_state: -5 mount_code: 0 py_venv: "e[bob]" override_node_resource { cpu: 1 memory: 2 }
            profile { time: 5 recorder: "r" interval { key: "g" value: 1 } warmup: 1 trace: true follow_task: true }
            tags: "a" tags: "b" watchdog_time: 0 record_git_revision: true shared_in_group: true
            assigned_nodes: "s0" assigned_nodes: "s1" sidecar: "fs" fffs_enable_fuse: true timeout: 5
            time_limit: 99 max_retries: 3 suspend_signal: "SIGUSR1"
            durable: "before_leaving" ack_within: 1 save_within: 60 env_fallback: true
            idle_timeout: 3600 lifetime: 7200 after { task: 12 } after { task: 13 outcome: "ended" }
        }
        roles { name: "m" count: 1 entrypoint: "x" parameters: "p" environments { key: "B" value: "" } gpu: 1 }
        roles { name: "w" count: 1 cpu: 2 memory: 3 }
        policies { on_pod_failed: "restart" on_pod_evicted: "fail" on_role_completed: "complete" min_available: 1 }
    """
    return spec(text)


def test_spec_is_unchanged_by_a_round_trip() -> None:
    able = context(("assign_nodes", "custom_service:local:*"))
    made = validate(_everything(), able)
    assert validate(spec_to_proto(made), able) == made
    plain = validate(spec(), able)
    assert validate(spec_to_proto(plain), able) == plain


_STRINGS = st.text(max_size=20)
_NUMBERS = st.integers(-(2**31), 2**31 - 1)


@given(
    st.lists(st.tuples(_STRINGS, _NUMBERS), max_size=3),
    _STRINGS,
    _NUMBERS,
    st.floats(allow_nan=True),
)
def test_no_input_causes_an_unexpected_error(
    pairs: list[tuple[str, int]], text: str, number: int, seconds: float
) -> None:
    given = pb.TaskSpec(version=number, name=text, task_type=text, priority=number)
    given.resource.group, given.resource.image = text, text
    given.resource.node_count = number
    given.options.py_venv, given.options.ack_within = text, seconds
    for name, count in pairs:
        given.spec.environments[name] = text
        given.services.add(name=name, type=text, port=count, rank=[count])
        given.roles.add(name=name, count=count, entrypoint=text, gpu=count)
        given.options.tags.append(name)
        given.options.assigned_nodes.append(name)
    with pytest.raises(Invalid):
        validate(given, context())


ROOMY = GroupCapacity(
    "default", True, [Node(f"n{i}", gpus=1024, cpus=4096, memory_bytes=1 << 60) for i in range(9)]
)
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["a", "a b", "x" * 511, "a(", " ", "ü", "a\n"]),
    "task_type": st.sampled_from(["", "training", "jupyter", "upgrade"]),
    "priority": st.sampled_from([-1, 0, 10, 50, 11]),
    "spec.entrypoint": st.sampled_from(["a.py", "b.sh", "c", "-d.py", ""]),
    "spec.entrypoint_executable": st.booleans(),
    "spec.workspace": st.sampled_from(
        ["", "/a", "/a b", "haiworkspace://a@1/b", "haiworkspace://a/.."]
    ),
    "spec.git_remote_repo": st.sampled_from(["", "https://x/y", "-x"]),
    "resource.image": st.sampled_from(["", "a", "reg/x:1", "reg.io/X", "a b"]),
    "resource.node_count": st.sampled_from([-1, 0, 1, 2, 9]),
    "resource.gpu": st.sampled_from([-1, 0, 1, 1024, 1025]),
    "options.py_venv": st.sampled_from(["", "base", "a[b]", "a["]),
    "options.time_limit": st.sampled_from([-1, 0, 60, 366 * 86400, 2**62]),
    "options.ack_within": st.sampled_from([0.0, 1.0, 300.0, 301.0]),
    "options.lifetime": st.sampled_from([0, 60]),
    "policies.min_available": st.sampled_from([0, 1, 3]),
}


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({}, optional=PARTS), st.lists(st.text(max_size=3), max_size=3))
def test_server_and_client_refuse_the_same_specs(values: dict[str, Any], tags: list[str]) -> None:
    made = spec()
    for path, value in values.items():
        part, _, name = path.rpartition(".")
        setattr(getattr(made, part) if part else made, name, value)
    made.options.tags.extend(tags)
    found = {(each.field, each.message) for each in violations(made)}
    judge = SubmitContext("ada", {"default": ROOMY}, lambda right: True)
    if not found:
        validate(made, judge)
        return
    with pytest.raises(Invalid) as caught:
        validate(made, judge)
    assert {(each.field, each.message) for each in caught.value.violations} == found


_IMAGE_PARTS = [
    "a",
    "A",
    "a.b",
    "localhost",
    "reg:5000",
    "/",
    "/",
    ":",
    "@",
    "v1",
    "_",
    "-",
    ".",
    " ",
    "sha256:" + "0" * 64,
]


@given(st.lists(st.sampled_from(_IMAGE_PARTS), min_size=1, max_size=7).map("".join))
def test_every_valid_image_can_be_parsed(text: str) -> None:
    """Built-in images have no slash."""
    assume("/" in text)
    assert (RULES["ResourceSpec.image"].problem(text) == "") == _parses(parse_image, text)


_WORKSPACE_PARTS = ["a", "B.", "@", "1", "v", "/", "/", "..", ".", "-", "x" * 63]


@given(st.lists(st.sampled_from(_WORKSPACE_PARTS), max_size=6).map("".join))
def test_every_valid_workspace_can_be_parsed(text: str) -> None:
    text = f"haiworkspace://{text}"
    assert (RULES["ProgramSpec.workspace"].problem(text) == "") == _parses(parse_reference, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _fields(message: Any, path: str = "") -> list[str]:
    found = []
    for field in message.DESCRIPTOR.fields:
        here = f"{path}{field.name}"
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        inner = field.message_type is not None and not field.is_repeated and not entry
        found += _fields(getattr(message, field.name), here + ".") if inner else [here]
    return found


def test_every_field_of_the_contract_is_converted() -> None:
    """A field that is new in the contract and missing in the conversion would come back empty."""
    able = context(("assign_nodes", "custom_service:local:*"))
    back = spec_to_proto(validate(_everything(), able))
    expected: Callable[[str], bool] = lambda path: "git_" not in path or "record" in path  # noqa: E731
    missing = [p for p in _fields(_everything()) if expected(p) and not _present(back, p)]
    assert missing == []


def _present(message: Any, path: str) -> bool:
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    return name in {field.name for field, _ in message.ListFields()} or (
        message.DESCRIPTOR.fields_by_name[name].has_presence and message.HasField(name)
    )


def container(text: str = "") -> pb.TaskSpec:
    return spec(f'task_type: "jupyter" {text}')


def test_container_has_no_watchdog_and_gets_notice() -> None:
    made = validate(container(), context())
    assert (made.options.watchdog_time, made.options.save_within) == (0, 32.0)
    asked = validate(container("options { watchdog_time: 60 save_within: 5 }"), context())
    assert (asked.options.watchdog_time, asked.options.save_within) == (60, 5.0)
    assert validate(spec(), context()).options.watchdog_time == 1800


def test_lifetime_is_limited_by_kind() -> None:
    able = replace(context(), lifetimes={"dedicated": 100, "spot": 50})
    assert validate(container(), able).options.lifetime == 100
    assert validate(container("options { lifetime: 60 }"), able).options.lifetime == 60
    assert validate(container("resource { is_spot: true }"), able).options.lifetime == 50
    given = container("options { lifetime: 101 }")
    with pytest.raises(Invalid, match="at most 100 s for dedicated containers"):
        validate(given, able)


def test_container_options_are_refused_for_other_tasks() -> None:
    assert set(broken(spec("options { idle_timeout: 5 lifetime: 5 }"))) == {
        "options.idle_timeout",
        "options.lifetime",
    }


def test_number_of_containers_per_user_is_limited() -> None:
    able = replace(context(), containers=2, containers_allowed=2)
    with pytest.raises(Invalid, match="2 dev containers, and 2 is the limit"):
        validate(container(), able)
    assert validate(spec(), able)
    assert validate(container(), replace(able, containers=1))

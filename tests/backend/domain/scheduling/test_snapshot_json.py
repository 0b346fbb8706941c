"""A snapshot is written and read without loss, to the last bit; other texts are rejected with a path."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group, Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.snapshot import (
    Ending,
    QuotaRow,
    SchedTask,
    SchedulingState,
    Snapshot,
)
from hai_backend.domain.scheduling.snapshot_json import anonymize, format_lines, parse
from hai_backend.domain.spec import TaskType

message = st.text(max_size=4)
numbers = st.floats() | st.sampled_from([0.0, -0.0, 0.1 + 0.2]) | st.integers(-(2**70), 2**70)
complete = st.integers(-5, 2**60)
levels = st.sampled_from(Priority)
nodes = st.builds(
    Node, message, message, message, st.sampled_from(NodeState), st.booleans(), complete, st.booleans(),
    complete, complete, st.lists(message, max_size=2).map(tuple), message, numbers,
)  # fmt: skip
suspensions = st.builds(Suspension, numbers, complete, st.booleans())
tasks = st.builds(
    SchedTask,
    id=complete,
    user=message,
    group=message,
    node_count=complete,
    priority=levels,
    created_at=numbers,
    standing=st.sampled_from(SchedulingState),
    zone=message,
    custom_rank=numbers,
    task_type=st.sampled_from(TaskType),
    gpu=complete,
    cpu=complete,
    memory=complete,
    held=st.booleans(),
    not_before=numbers,
    assigned_nodes=st.lists(message, max_size=2).map(tuple),
    placed=st.lists(message, max_size=2).map(tuple),
    run_priority=levels,
    run_started_at=st.none() | numbers,
    saved_at=st.none() | numbers,
    leaves_free=st.booleans(),
    suspended_for=complete,
    run_seconds=numbers,
    name=message,
    waiting_since=st.none() | numbers,
    suspensions=st.lists(suspensions, max_size=2).map(tuple),
    yields=st.booleans(),
    restart_seconds=st.none() | numbers,
    save_seconds=numbers,
    lost_seconds=numbers,
    unsaved_suspensions=complete,
)
snapshots = st.builds(
    Snapshot,
    numbers,
    st.lists(nodes, max_size=3).map(tuple),
    st.lists(tasks, max_size=3).map(tuple),
    st.dictionaries(message, st.builds(Group, message, st.booleans(), message), max_size=2),
    st.lists(st.builds(QuotaRow, message, message, levels, complete), max_size=2).map(tuple),
    st.frozensets(message, max_size=2),
    complete,
    st.lists(st.builds(Ending, tasks, numbers), max_size=2).map(tuple),
)


def text(snapshot: Snapshot) -> str:
    return "".join(format_lines(snapshot))


@given(snapshots)
@settings(max_examples=200, deadline=None)
def test_a_snapshot_is_converted_to_json_and_back_without_loss(snapshot: Snapshot) -> None:
    again = parse(text(snapshot))
    # repr distinguishes 0, 0.0, -0.0 and nan; the order of sets in it has no meaning
    assert repr(replace(again, inactive_users=frozenset())) == repr(
        replace(snapshot, inactive_users=frozenset())
    )
    assert again.inactive_users == snapshot.inactive_users
    assert text(again) == text(snapshot)


@given(snapshots)
@settings(max_examples=50, deadline=None)
def test_the_text_is_standard_json(snapshot: Snapshot) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(text(snapshot), parse_constant=refuse)["format"] == "hai.snapshot"


ONE = SchedTask(7, "ada", "g", 2, Priority.HIGH, 5.0, name="bert-#")
SMALL = Snapshot(9.0, (Node("n1", reason="ask bob"),), (ONE,))


def test_default_values_are_omitted() -> None:
    found = json.loads(text(SMALL))
    assert set(found) == {"format", "version", "now", "nodes", "tasks"}
    assert found["tasks"] == [
        {
            "id": 7,
            "user": "ada",
            "group": "g",
            "node_count": 2,
            "priority": "HIGH",
            "created_at": 5.0,
            "name": "bert-#",
        }
    ]


def changed(**facts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found.update(facts)


def of_the_task(**facts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["tasks"][0].update(facts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(changed(format="x"), "f: is not a snapshot: its `format`", id="format"),
        pytest.param(changed(version=2), "f: has version 2 of the format; known is 1", id="later"),
        pytest.param(changed(now=None), "f.now: must be a number, not None", id="now"),
        pytest.param(changed(nodes={}), "f.nodes: must be a list, not {}", id="nodes"),
        pytest.param(changed(secret=1), "f.secret: is not known; there are now,", id="unknown"),
        pytest.param(of_the_task(id=True), "f.tasks[0].id: must be int, not True", id="flag"),
        pytest.param(of_the_task(id="7"), "f.tasks[0].id: must be int, not '7'", id="text"),
        pytest.param(of_the_task(held=0), "f.tasks[0].held: must be bool, not 0", id="number"),
        pytest.param(of_the_task(priority=30), "f.tasks[0].priority: must be one of", id="level"),
        pytest.param(of_the_task(env={}), "f.tasks[0].env: is not known", id="program"),
        pytest.param(
            of_the_task(suspensions=[{"at": 1}]),
            "f.tasks[0].suspensions[0].for_task: is missing",
            id="missing",
        ),
    ],
)
def test_unexpected_json_is_rejected_with_its_path(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    found = json.loads(text(SMALL))
    change(found)
    with pytest.raises(Invalid) as caught:
        parse(json.dumps(found), "f")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("broken", ["", "{", "[" * 100_000, "3", "[]"])
def test_a_text_that_is_not_a_snapshot_is_rejected(broken: str) -> None:
    with pytest.raises(Invalid):
        parse(broken, "f")


def test_pseudonyms_hide_people_and_sort_as_they_do() -> None:
    people = ["zoe", "ada", "", "bob"]
    some = tuple(replace(ONE, id=i, user=user, name=user) for i, user in enumerate(people))
    original = replace(
        SMALL,
        tasks=some,
        endings=(Ending(ONE, 5.0),),
        quotas=(QuotaRow("eve", "g", Priority.LOW, 3),),
        inactive_users=frozenset({"ada"}),
    )
    hidden = anonymize(original)
    assert [task.user for task in hidden.tasks] == ["u4", "u1", "", "u2"]
    assert [task.name for task in hidden.tasks] == ["x4", "x1", "", "x3"]
    assert (hidden.quotas[0].user, hidden.inactive_users) == ("u3", frozenset({"u1"}))
    assert (hidden.endings[0].task.user, hidden.endings[0].task.name) == ("u1", "x2")
    assert not any(word in text(hidden) for word in ("ada", "bob", "zoe", "eve", "bert"))
    assert hidden == anonymize(original)

"""JSON patch, merge patch, strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.storage.patches import json_patch, merge_patch, strategic_merge

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("ab", min_size=1, max_size=2), JSON, max_size=4)


@pytest.mark.parametrize(
    ("target", "patch", "made"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="remove"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="list to string"),
        pytest.param(
            {"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="nested"
        ),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="null stays in the target"),
        pytest.param({}, {"a": {"bb": {"c": None}}}, {"a": {"bb": {}}}, id="nulls of a new part"),
    ],
)
def test_merge_patch(target: Any, patch: Any, made: Any) -> None:
    assert merge_patch(target, patch) == made


@given(OBJECTS, OBJECTS)
def test_merge_patch_is_idempotent_and_changes_nothing_in_place(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before


@pytest.mark.parametrize(
    ("operations", "made"),
    [
        pytest.param([("add", "/c", 1)], {"a": {"b": [1, 2]}, "c": 1}, id="add a member"),
        pytest.param([("add", "/a/b/1", 9)], {"a": {"b": [1, 9, 2]}}, id="insert"),
        pytest.param([("add", "/a/b/-", 9)], {"a": {"b": [1, 2, 9]}}, id="append"),
        pytest.param([("remove", "/a/b/0", None)], {"a": {"b": [2]}}, id="remove"),
        pytest.param([("replace", "/a/b", 3)], {"a": {"b": 3}}, id="replace"),
        pytest.param([("test", "/a/b/0", 1), ("remove", "/a", None)], {}, id="test"),
        pytest.param([("add", "/x~1y", 1)], {"a": {"b": [1, 2]}, "x/y": 1}, id="escaped"),
    ],
)
def test_json_patch(operations: list[tuple[str, str, Any]], made: Any) -> None:
    target = {"a": {"b": [1, 2]}}
    rows = [{"op": o, "path": p, "value": v} for o, p, v in operations]
    assert json_patch(target, rows) == made
    assert target == {"a": {"b": [1, 2]}}


def test_json_patch_moves_and_copies() -> None:
    rows = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "move", "from": "/a", "path": "/c"}]
    assert json_patch({"a": [1]}, rows) == {"b": [1], "c": [1]}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        pytest.param({"op": "remove", "path": "/x"}, 422, id="missing"),
        pytest.param({"op": "test", "path": "/a", "value": 2}, 422, id="a test that fails"),
        pytest.param({"op": "replace", "path": "/x", "value": 2}, 422, id="replacing nothing"),
        pytest.param({"op": "wish", "path": "/a"}, 422, id="no such operation"),
        pytest.param({"path": "/a"}, 400, id="no operation"),
    ],
)
def test_json_patch_refuses(operation: Any, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({"a": 1}, [operation])
    assert caught.value.code == code


def rows(**values: Any) -> list[dict[str, Any]]:
    return [{"name": k, "value": v} for k, v in values.items()]


@pytest.mark.parametrize(
    ("target", "patch", "made"),
    [
        pytest.param({"env": rows(A="1", B="2")}, {"env": rows(B="3")}, {"env": rows(A="1", B="3")}, id="env"),
        pytest.param(
            {"env": rows(A="1", B="2")},
            {"env": [{"name": "A", "$patch": "delete"}]},
            {"env": rows(B="2")},
            id="delete an entry",
        ),
        pytest.param(
            {"env": rows(A="1")},
            {"env": [{"$patch": "replace"}, *rows(C="3")]},
            {"env": rows(C="3")},
            id="replace a list",
        ),
        pytest.param(
            {"volumeMounts": [{"mountPath": "/a", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/b", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "x"}, {"mountPath": "/b", "name": "x"}]},
            id="mounts by path",
        ),
        pytest.param(
            {"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]},
            id="tolerations are one value",
        ),
        pytest.param(
            {"conditions": [{"type": "Ready", "status": "True"}]},
            {"conditions": [{"type": "Mine", "status": "True"}]},
            {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Mine", "status": "True"}]},
            id="conditions by type",
        ),
        pytest.param({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}, id="a set"),
        pytest.param(
            {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]},
            id="taken from a set",
        ),
        pytest.param(
            {"ownerReferences": [{"uid": "1"}]},
            {"ownerReferences": [{"uid": "2"}]},
            {"ownerReferences": [{"uid": "1"}, {"uid": "2"}]},
            id="owners by uid",
        ),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}, id="replace"),
        pytest.param({"a": {"b": 1}}, {"a": None}, {}, id="null removes"),
        pytest.param(
            {"s": {"type": "A", "a": 1}}, {"s": {"$retainKeys": ["type"], "type": "B"}}, {"s": {"type": "B"}},
            id="retain keys",
        ),
        pytest.param(
            {"env": rows(A="1", B="2")},
            {"$setElementOrder/env": [{"name": "B"}, {"name": "A"}], "env": rows(B="3")},
            {"env": rows(B="3", A="1")},
            id="order",
        ),
        pytest.param(
            {"ports": [{"containerPort": 1, "name": "a"}]},
            {"ports": [{"containerPort": 1, "name": "b"}]},
            {"ports": [{"containerPort": 1, "name": "b"}]},
            id="ports of a container",
        ),
    ],
)  # fmt: skip
def test_strategic_merge(target: Any, patch: Any, made: Any) -> None:
    before = copy.deepcopy(target)
    assert strategic_merge(target, patch) == made
    assert target == before


def test_an_entry_without_its_key_is_refused() -> None:
    with pytest.raises(ApiError, match="merge key: name"):
        strategic_merge({"env": rows(A="1")}, {"env": [{"value": "1"}]})


@given(OBJECTS, OBJECTS)
def test_strategic_merge_is_merge_patch_where_no_list_has_a_key(target: Any, patch: Any) -> None:
    def lists(value: Any) -> bool:
        inner = value.values() if isinstance(value, dict) else ()
        return isinstance(value, list) or any(map(lists, inner))

    if not lists(patch):
        assert strategic_merge(target, patch) == merge_patch(target, patch)

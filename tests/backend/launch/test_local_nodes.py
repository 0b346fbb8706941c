"""How a machine is divided into nodes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hai_backend.launch.local_nodes import divide, packed_groups


def layout(nodes: int = 4, gpus_per_node: int = 0, groups: dict[str, int] | None = None):
    return SimpleNamespace(nodes=nodes, gpus_per_node=gpus_per_node, groups=groups or {})


@pytest.mark.parametrize(
    ("nodes", "declared", "real", "dealt"),
    [
        pytest.param(4, 0, 0, [()] * 4, id="none"),
        pytest.param(4, 8, 0, [()] * 4, id="declared only"),
        pytest.param(4, 0, 8, [(0, 1), (2, 3), (4, 5), (6, 7)], id="dealt out"),
        pytest.param(4, 8, 4, [(0,), (1,), (2,), (3,)], id="real ones beat declared ones"),
        pytest.param(4, 0, 2, [(0,), (1,), (), ()], id="fewer than nodes"),
        pytest.param(0, 0, 0, [()] * 4, id="no number of nodes, no GPUs"),
        pytest.param(0, 2, 0, [()] * 4, id="no number of nodes, declared GPUs"),
        pytest.param(0, 0, 1, [(0,)], id="no number of nodes, one GPU"),
        pytest.param(0, 0, 8, [tuple(range(8))], id="no number of nodes, several GPUs"),
        pytest.param(2, 0, 5, [(0, 1), (2, 3)], id="a rest stays out: nodes are equal"),
    ],
)
def test_gpus_are_dealt_to_nodes(nodes, declared, real, dealt):
    divided = divide(layout(nodes, declared), real)
    assert [n.gpu_indices for n in divided] == dealt
    if real:
        assert [n.node.gpus for n in divided] == [len(d) for d in dealt]
    assert {n.node.gpus_simulated for n in divided} == {not real and declared > 0}
    assert not declared or real or {n.node.gpus for n in divided} == {declared}


@pytest.mark.parametrize(
    ("nodes", "real", "groups"),
    [
        pytest.param(4, 0, ["default"] * 4, id="no GPUs"),
        pytest.param(4, 4, ["default"] * 4, id="as many GPUs as nodes"),
        pytest.param(4, 1, ["default", "cpu", "cpu", "cpu"], id="fewer GPUs than nodes"),
        pytest.param(0, 1, ["default"], id="by default"),
    ],
)
def test_nodes_with_and_without_gpus_are_in_different_groups(nodes, real, groups):
    assert [n.node.group for n in divide(layout(nodes), real)] == groups


@pytest.mark.parametrize(
    ("given", "real", "shared"),
    [
        pytest.param(layout(0), 0, set(), id="no GPUs"),
        pytest.param(layout(4, 8), 0, set(), id="simulated GPUs"),
        pytest.param(layout(0), 1, set(), id="one GPU"),
        pytest.param(layout(0), 2, {"default"}, id="several on one node"),
        pytest.param(layout(8), 8, set(), id="one on each node"),
        pytest.param(layout(2), 8, {"default"}, id="several on each node"),
        pytest.param(layout(0, groups={"a": 1, "b": 1}), 4, {"a", "b"}, id="named groups"),
    ],
)
def test_nodes_with_several_gpus_are_shared(given, real, shared):
    assert packed_groups(divide(given, real)) == shared


def test_named_groups_may_mix_nodes_with_and_without_gpus():
    divided = divide(layout(0, groups={"default": 2}), 1)
    assert [(n.node.group, n.node.gpus) for n in divided] == [("default", 1), ("default", 0)]


def test_groups_replace_the_number_of_nodes_and_names_stay_unique():
    divided = divide(layout(4, groups={"train": 2, "dev": 1}), 0)
    assert [(n.node.name, n.node.group) for n in divided] == [
        ("node1", "train"),
        ("node2", "train"),
        ("node3", "dev"),
    ]
    assert all(n.node.cpus >= 1 and n.node.memory_bytes > 0 for n in divided)

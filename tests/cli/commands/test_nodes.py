"""`hai nodes` shows GPUs. `hai node …` describes the state of a changed node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai.client.fake.server import FakeClient
from hai.v1.node_pb2 import Gpu, Node
from hai_tui.cli.commands.cluster.nodes import _uncordoned
from hai_tui.views.gpus import model_text, use_text


@pytest.mark.parametrize(
    ("node", "said"),
    [
        pytest.param(Node(state="NODE_STATE_READY"), "takes work again", id="ready"),
        pytest.param(
            Node(state="NODE_STATE_NOT_READY", reason="kubelet stopped"),
            "NOT_READY: kubelet stopped",
            id="not ready",
        ),
    ],
)
def test_a_node_is_said_to_take_work_only_when_it_does(node: Node, said: str) -> None:
    assert _uncordoned(node) == said


GIB = 1 << 30
BUSY = Gpu(
    index=0,
    model="NVIDIA H100 80GB HBM3",
    memory_bytes=80 * GIB,
    memory_used_bytes=61 * GIB,
    utilisation=0.93,
    temperature=71,
)
IDLE = Gpu(
    index=1,
    model="NVIDIA H100 80GB HBM3",
    memory_bytes=80 * GIB,
    memory_used_bytes=GIB,
    utilisation=0.0,
    temperature=38,
)
SLICE = Gpu(index=2, memory_bytes=10 * GIB)


@pytest.mark.parametrize(
    ("gpus", "model", "use"),
    [
        pytest.param([BUSY], "H100 80GB HBM3", "93% 61/80G 71°C", id="one"),
        pytest.param([BUSY, IDLE], "H100 80GB HBM3", "46% 62/160G 71°C", id="several"),
        pytest.param([SLICE], "", "0/10G", id="a slice reports neither use nor temperature"),
        pytest.param([], "", "-", id="none"),
    ],
)
def test_gpus_in_a_cell(gpus: list[Gpu], model: str, use: str) -> None:
    assert (model_text(gpus), use_text(gpus)) == (model, use)


@pytest.fixture
def measured(fake: FakeClient) -> FakeClient:
    fake.world.nodes["n1"].gpu_devices.extend([BUSY, IDLE])
    return fake


def test_the_list_of_nodes_has_a_column_for_gpus_only_if_some_are_measured(
    hai: Any, measured: FakeClient
) -> None:
    lines = hai("nodes").out.splitlines()
    assert "GPU_USE" in lines[0]
    (line,) = [line for line in lines if line.startswith("n1 ")]
    assert "8 (H100 80GB HBM3)" in line
    assert "46% 62/160G 71°C" in line
    del measured.world.nodes["n1"].gpu_devices[:]
    assert "GPU_USE" not in hai("nodes").out
    assert "GPU_USE" in hai("nodes", "--columns", "node,gpu_use").out


def test_a_node_is_shown_with_each_gpu(hai: Any, measured: FakeClient) -> None:
    nodes, gpus = hai("nodes", "n1").out.split("\n\n")
    assert [line.split()[0] for line in nodes.splitlines()] == ["NODE", "n1"]
    assert [line.split() for line in gpus.splitlines()[1:]] == [
        ["n1", "0", "H100", "80GB", "HBM3", "80", "GiB", "61", "GiB", "93%", "71°C"],
        ["n1", "1", "H100", "80GB", "HBM3", "80", "GiB", "1", "GiB", "0%", "38°C"],
    ]
    (node,) = json.loads(hai("nodes", "n1", "--json").out)["nodes"]
    assert node["gpu_devices"][0]["temperature"] == 71
    missing = hai("nodes", "n1", "nope")
    assert missing.code != 0
    assert "nope" in missing.err


def test_a_task_is_shown_with_the_gpus_of_its_ranks(hai: Any, fake: FakeClient) -> None:
    fake.start(1, ["n1"])
    assert "GPU_USE" not in hai("status", "1").out
    fake.world.tasks[1].run.ranks[0].gpus.extend([IDLE])
    out = hai("status", "1").out
    assert "1 (H100 80GB HBM3)" in out
    assert "0% 1/80G 38°C" in out

"""Nodes and ranks are returned with their real GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from hai.v1 import node_service_pb2 as pb
from hai.v1.task_service_pb2 import GetTaskRequest
from hai_backend.domain.gpu import GpuState
from hai_backend.domain.priority import Priority
from hai_backend.lifecycle import events as ev
from tests.support.builders import a_spec

GIB = 1 << 30
STATE = GpuState(0, "NVIDIA H100 80GB HBM3", 80 * GIB, 61 * GIB, 0.93, 71)
SLICE = GpuState(1, "NVIDIA H100 80GB HBM3", 80 * GIB, GIB)


@pytest.fixture
async def ada(platform: Any) -> Any:
    platform.fake_launcher.gpus = {"n0": (STATE, SLICE), "n1": ()}
    return await platform.caller("ada")


async def test_nodes_have_their_gpus(ada: Any) -> None:
    nodes = (await ada.nodes.ListNodes(pb.ListNodesRequest())).nodes
    assert {n.name: len(n.gpu_devices) for n in nodes if n.name in ("n0", "n1")} == {
        "n0": 2,
        "n1": 0,
    }
    first, second = (await ada.nodes.GetNode(pb.GetNodeRequest(name="n0"))).gpu_devices
    assert (first.index, first.model) == (0, STATE.model)
    assert (first.memory_bytes, first.memory_used_bytes) == (80 * GIB, 61 * GIB)
    assert (first.utilisation, first.temperature) == (0.93, 71)
    assert not second.HasField("utilisation")
    assert not second.HasField("temperature")


async def test_watched_nodes_have_none(ada: Any) -> None:
    stream = ada.nodes.WatchNodes(pb.WatchNodesRequest())
    async for answer in stream:
        assert not any(node.gpu_devices for node in answer.nodes)
        break


async def test_ranks_have_their_gpus(platform: Any, ada: Any) -> None:
    task = await platform.task_manager.submit("ada", a_spec("train", 2), "")
    placed = ev.RunPlaced(("n0", "n1"), Priority.NORMAL, "fits", gpus=((1,), ()))
    await platform.task_manager.apply(task.id, placed)
    message = await ada.tasks.GetTask(GetTaskRequest(id=task.id))
    assert [[gpu.index for gpu in rank.gpus] for rank in message.run.ranks] == [[1], []]

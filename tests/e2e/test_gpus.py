"""A machine with several GPUs is one node that tasks share by GPU. The GPUs are pretended; the ranks are processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.client.errors import Invalid
from hai.v1.task_pb2 import TASK_STATE_RUNNING, TASK_STATE_WAITING_INIT
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.launch import nvml
from hai_backend.launch.local_launcher import sweep
from tests.support import fake_nvml
from tests.support.servers import running_server
from tests.support.service_cluster import ServiceCluster

PROGRAM = "echo gpus=$CUDA_VISIBLE_DEVICES; exec sleep infinity"


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServiceCluster]:
    """Run a server on a machine with two GPUs, whose driver is a stand-in, with the default settings."""
    monkeypatch.setattr(nvml, "library", lambda: fake_nvml)
    home = tmp_path / "home"
    async with running_server(home, nodes=0) as server, Client(server.profile) as client:
        yield ServiceCluster(server, client, tmp_path)
    sweep(home)


async def submit(machine: ServiceCluster, name: str, **resource: int) -> int:
    program = ProgramSpec(entrypoint="sh", parameters=["-c", PROGRAM], entrypoint_executable=True)
    spec = TaskSpec(version=2, name=name, spec=program, resource=ResourceSpec(**resource))
    return (await machine.client.tasks.create(spec)).id


async def seen_gpus(machine: ServiceCluster, task: int) -> str:
    """Return the GPUs that the program of a running task sees."""
    await machine.wait_running(task)
    async for answer in machine.client.logs.tail(task, follow=True):
        for line in answer.lines:
            return line.text
    raise AssertionError("the log ended")


async def test_tasks_of_one_gpu_run_side_by_side(machine: ServiceCluster) -> None:
    first, second = await submit(machine, "a", gpu=1), await submit(machine, "b", gpu=1)
    assert await seen_gpus(machine, first) == "gpus=0"
    assert await seen_gpus(machine, second) == "gpus=1"
    without = await submit(machine, "c", cpu=1)
    assert await seen_gpus(machine, without) == "gpus="
    third = await submit(machine, "d", gpu=1)
    assert (await machine.client.tasks.get(third)).state == TASK_STATE_WAITING_INIT
    await machine.client.tasks.stop(first)
    assert await seen_gpus(machine, third) == "gpus=0"
    (rank,) = (await machine.client.tasks.get(second)).run.ranks
    assert [(gpu.index, gpu.memory_used_bytes) for gpu in rank.gpus] == [(1, fake_nvml.GIB)]


async def test_a_task_that_says_nothing_has_all_gpus(machine: ServiceCluster) -> None:
    (node,) = await machine.client.nodes.list()
    assert (node.name, node.group, node.gpus) == ("node1", "default", 2)
    assert [gpu.temperature for gpu in node.gpu_devices] == [71, 0]
    whole = await submit(machine, "a")
    assert await seen_gpus(machine, whole) == "gpus=0,1"
    assert (await machine.client.tasks.get(whole)).state == TASK_STATE_RUNNING


async def test_more_gpus_than_the_machine_has_are_refused(machine: ServiceCluster) -> None:
    with pytest.raises(Invalid, match="the nodes of group default have at most 2"):
        await submit(machine, "a", gpu=3)

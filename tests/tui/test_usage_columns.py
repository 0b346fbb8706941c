"""The list of tasks shows the usage of each task: in the demo cluster, and from values."""

from __future__ import annotations

import pytest

from hai.client.profile import Profile
from hai.v1.task_pb2 import TASK_STATE_FINISHED, TASK_STATE_RUNNING, Rank, Run, Task
from hai.v1.usage_service_pb2 import NodeUsage
from hai_tui.demo_cluster.cluster import demo
from hai_tui.tasks.usage_columns import TaskUsage

GIB = 1 << 30
A = NodeUsage(
    node="a", cpus=8, memory_bytes=GIB, gpu_utilisation=0.8, gpu_memory_bytes=2 * GIB
)  # fmt: skip
B = NodeUsage(node="b", cpus=4.5, memory_bytes=3 * GIB, gpu_utilisation=0.4, gpu_memory_bytes=GIB)
C = NodeUsage(node="c", cpus=1, memory_bytes=GIB)


def task(id: int, *nodes: str, state: int = TASK_STATE_RUNNING) -> Task:
    ranks = [Rank(index=i, node=node) for i, node in enumerate(nodes)]
    return Task(id=id, state=state, run=Run(ranks=ranks))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        pytest.param([task(1, "a", "b")], ["60%", "3 GiB", "12.5", "4 GiB"], id="of all its nodes"),
        pytest.param([task(1, "c")], ["-", "-", "1.0", "1 GiB"], id="no GPU is measured"),
        pytest.param([task(1, "d")], ["-"] * 4, id="nothing is measured"),
        pytest.param([task(1, "a"), task(2, "a")], ["-"] * 4, id="a shared node is nobody's"),
        pytest.param([task(1, "a", state=TASK_STATE_FINISHED)], ["-"] * 4, id="it has ended"),
        pytest.param(
            [task(1, "c"), task(2, "c", state=TASK_STATE_FINISHED)],
            ["-", "-", "1.0", "1 GiB"],
            id="who has ended is not there",
        ),
    ],
)
def test_a_task_uses_what_its_nodes_use(tasks: list[Task], told: list[str]) -> None:
    use = TaskUsage()
    use.update([A, B, C], tasks)
    assert [cell(tasks[0], 0.0) for cell in use.cells().values()] == told


async def test_columns_of_use_are_chosen_and_filled(drive) -> None:
    client = await demo()
    options = {"connect": lambda profile: client, "clock": lambda: client.world.now}
    async with drive(Profile("lab", "fake:0"), size=(120, 30), **options) as tui:
        await tui.shows("12 tasks")
        assert "GPU%" not in tui.screen()
        await tui.press("C")
        await tui.shows("GPU%", "GPU MEM")
        tui.app.screen.dismiss(["name", "status", "gpu_use", "gpu_memory", "cpu_use", "memory_use"])
        await tui.shows("GPU%", "diffusion-256", "68%")

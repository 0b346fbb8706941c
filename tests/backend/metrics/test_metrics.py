"""What /metrics says, and GPUs that may not be there."""

from __future__ import annotations

import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from hai_backend.domain.errors import Unavailable
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.task import TaskState
from hai_backend.metrics import nvml
from hai_backend.metrics.prometheus import Metrics, MetricsServer
from hai_backend.testing import a_task


def _text(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_what_is_counted_can_be_read() -> None:
    metrics = Metrics()
    metrics.call("/hai.v1.TaskService/GetTask", "OK", 0.002)
    metrics.passed(0.01)
    metrics.submitted(a_task())
    metrics.waited(a_task(), 12)
    metrics.suspended("preempted")
    metrics.tasks({TaskState.RUNNING: 3})
    metrics.nodes([Node("a"), Node("b", cordoned=True), Node("c", state=NodeState.NOT_READY)])
    metrics.gpu(0, 0.5)
    server = MetricsServer(metrics, 0)
    try:
        text = _text(server)
        with pytest.raises(Unavailable, match="cannot serve metrics"):
            MetricsServer(metrics, server.port)
    finally:
        server.close()
    for line in (
        'hai_rpc_seconds_count{code="OK",method="GetTask"} 1.0',
        "hai_scheduler_pass_seconds_count 1.0",
        'hai_tasks_submitted_total{task_type="training"} 1.0',
        'hai_queue_wait_seconds_count{priority="NORMAL"} 1.0',
        'hai_suspends_total{reason="preempted"} 1.0',
        'hai_tasks{state="RUNNING"} 3.0',
        'hai_tasks{state="SUSPENDED"} 0.0',
        'hai_nodes{group="default",state="CORDONED"} 1.0',
        'hai_gpu_utilisation_ratio{gpu="0"} 0.5',
    ):
        assert line in text


def test_a_group_that_is_gone_is_not_counted_for_ever() -> None:
    metrics = Metrics()
    metrics.nodes([Node("a", group="old")])
    metrics.nodes([Node("a", group="new")])
    assert (
        metrics.registry.get_sample_value("hai_nodes", {"group": "old", "state": "READY"}) is None
    )


class FakeNvml:
    """The verbs of pynvml, for two GPUs of which one can not say how busy it is."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, driver: bool = True) -> None:
        self._driver = driver
        self.open = 0

    def nvmlInit(self) -> None:
        if not self._driver:
            raise self.NVMLError("no driver")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return "H100" if handle else b"H100"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=80, used=20)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if handle:
            raise self.NVMLError("MIG")
        return SimpleNamespace(gpu=50)


def test_gpus_are_found() -> None:
    fake = FakeNvml()
    assert nvml.discover(lambda: fake) == [
        nvml.Gpu(0, "H100", "GPU-0", 80),
        nvml.Gpu(1, "H100", "GPU-1", 80),
    ]
    assert nvml.utilisation(lambda: fake) == [nvml.GpuUse(0, 0.5, 20), nvml.GpuUse(1, 0.0, 20)]
    assert fake.open == 0


def _no_binding() -> Any:
    raise ImportError("pynvml")


@pytest.mark.parametrize(
    "load", [lambda: FakeNvml(driver=False), _no_binding], ids=["no driver", "no binding"]
)
def test_a_machine_without_gpus(load: Any) -> None:
    assert nvml.discover(load) == []
    assert nvml.utilisation(load) == []

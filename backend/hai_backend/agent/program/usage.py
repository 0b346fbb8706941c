"""Measures the resource usage of the rank's processes: CPU and memory from /proc, GPUs from NVML."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hai.v1 import agent_service_pb2 as pb
from hai.v1.node_pb2 import Gpu
from hai_backend.domain.gpu import GpuState
from hai_backend.launch.nvml import GpuReader
from hai_backend.launch.processes import TICKS_PER_SECOND, Process


class Usage:
    """Measures usage. The CPU usage is the mean since the previous measurement.

    `gpu_indices` are the machine's indices of the rank's GPUs; None for all GPUs that the container shows.
    """

    def __init__(self, gpu_indices: Sequence[int] | None) -> None:
        self._gpus = GpuReader(gpu_indices)
        self._ticks: dict[tuple[int, int], int] = {}
        self._measured_at = time.monotonic()

    def measure(self, processes: Sequence[Process]) -> pb.Heartbeat:
        """Return a heartbeat with the usage of these processes and of the GPUs."""
        beat = pb.Heartbeat(
            cpus=self._cpus(processes), memory_bytes=sum(p.resident_bytes for p in processes)
        )
        gpus = self._gpus.read()
        beat.gpus.extend(_gpu_message(gpu) for gpu in gpus)
        beat.gpu_memory_bytes = sum(gpu.memory_used_bytes for gpu in gpus)
        if rates := [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]:
            beat.gpu_utilisation = sum(rates) / len(rates)
        return beat

    def _cpus(self, processes: Sequence[Process]) -> float:
        now = time.monotonic()
        ticks = {(p.pid, p.started): p.cpu_ticks for p in processes}
        used = sum(value - self._ticks.get(process, 0) for process, value in ticks.items())
        seconds = max(now - self._measured_at, 1 / TICKS_PER_SECOND)
        self._ticks, self._measured_at = ticks, now
        return used / TICKS_PER_SECOND / seconds


def _gpu_message(gpu: GpuState) -> Gpu:
    return Gpu(
        index=gpu.index,
        model=gpu.model,
        memory_bytes=gpu.memory_bytes,
        memory_used_bytes=gpu.memory_used_bytes,
        utilisation=gpu.utilisation,
        temperature=gpu.temperature,
    )

"""Measures the resource usage of the rank's processes: CPU and memory from /proc, GPUs from NVML."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hai.v1 import agent_service_pb2 as pb
from hai_backend.launch.processes import TICKS_PER_SECOND, Process


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The mean utilisation of GPUs (0 to 1), and the sum of their used memory."""

    utilisation: float
    memory_bytes: int


class Usage:
    """Measures usage. The CPU usage is the mean since the previous measurement."""

    def __init__(self, gpu_indices: Sequence[int]) -> None:
        self._gpus = _open_gpus(gpu_indices)
        self._ticks: dict[tuple[int, int], int] = {}
        self._measured_at = time.monotonic()

    def measure(self, processes: Sequence[Process]) -> pb.Heartbeat:
        """Return a heartbeat with the usage of these processes and of the GPUs."""
        beat = pb.Heartbeat(
            cpus=self._cpus(processes), memory_bytes=sum(p.resident_bytes for p in processes)
        )
        gpus = _gpu_use(self._gpus)
        if gpus is not None:
            beat.gpu_utilisation = gpus.utilisation
            beat.gpu_memory_bytes = gpus.memory_bytes
        return beat

    def _cpus(self, processes: Sequence[Process]) -> float:
        now = time.monotonic()
        ticks = {(p.pid, p.started): p.cpu_ticks for p in processes}
        used = sum(value - self._ticks.get(process, 0) for process, value in ticks.items())
        seconds = max(now - self._measured_at, 1 / TICKS_PER_SECOND)
        self._ticks, self._measured_at = ticks, now
        return used / TICKS_PER_SECOND / seconds


def _open_gpus(indices: Sequence[int]) -> list[Any]:
    """Return the NVML handles of the GPUs; an empty list if NVML is not available."""
    if not indices:
        return []
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []  # simulated GPUs; returning here saves the import
    import pynvml

    try:
        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
    except pynvml.NVMLError:
        return []


def _gpu_use(handles: Sequence[Any]) -> GpuUse | None:
    if not handles:
        return None
    import pynvml

    try:
        busy = [pynvml.nvmlDeviceGetUtilizationRates(h).gpu / 100 for h in handles]
        memory = sum(int(pynvml.nvmlDeviceGetMemoryInfo(h).used) for h in handles)
    except pynvml.NVMLError:
        return None
    return GpuUse(sum(busy) / len(busy), memory)

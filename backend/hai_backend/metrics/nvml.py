"""The GPUs of this machine, by NVML. A machine without driver or library has none: that is no error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Load = Callable[[], ModuleType | Any]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    index: int
    name: str
    uuid: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How busy a GPU is now; `busy` is from 0 to 1."""

    index: int
    busy: float
    memory_bytes: int


def load() -> Any:
    """The NVML binding. Raises ImportError."""
    import pynvml

    return pynvml


def discover(load: Load = load) -> list[Gpu]:
    """All GPUs, by index."""
    with _session(load) as nvml:
        return [_gpu(nvml, index, handle) for index, handle in _handles(nvml)]


def utilisation(load: Load = load) -> list[GpuUse]:
    """How busy each GPU is; one that can not say counts as idle."""
    with _session(load) as nvml:
        return [_use(nvml, index, handle) for index, handle in _handles(nvml)]


@contextmanager
def _session(load: Load) -> Iterator[Any]:
    """The library between init and shutdown; None when there is none."""
    try:
        nvml = load()
        nvml.nvmlInit()
    except (ImportError, OSError):
        yield None
        return
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: Any) -> Iterator[tuple[int, Any]]:
    if nvml is not None:
        for index in range(nvml.nvmlDeviceGetCount()):
            yield index, nvml.nvmlDeviceGetHandleByIndex(index)


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle).total
    return Gpu(
        index, _text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlDeviceGetUUID(handle)), memory
    )


def _use(nvml: Any, index: int, handle: Any) -> GpuUse:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle).used
    try:
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except nvml.NVMLError:  # MIG parts do not say
        busy = 0.0
    return GpuUse(index, busy, memory)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

"""Reads the NVIDIA GPUs of this machine with NVML, the library of the driver.

Without a driver, nothing is imported and there are no GPUs. A call may take long if a GPU is broken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from hai_backend.domain.gpu import GpuState


def library() -> Any | None:
    """Return the module pynvml, initialized; None if this machine has no driver or the driver does not work."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None  # this avoids the import below
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def count() -> int:
    """Return the number of GPUs."""
    nvml = library()
    if nvml is None:
        return 0
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return 0
    finally:
        nvml.nvmlShutdown()


class GpuReader:
    """Reads the state of some GPUs of this machine, or of all if `indices` is None."""

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        self._nvml = library() if indices is None or indices else None
        self._indices = indices

    def read(self) -> tuple[GpuState, ...]:
        """Return the state of each GPU that answers. The index is the machine's."""
        if self._nvml is None:
            return ()
        indices = self._indices
        if indices is None:
            indices = range(self._value(self._nvml.nvmlDeviceGetCount) or 0)
        states = (self._read_gpu(index) for index in indices)
        return tuple(state for state in states if state is not None)

    def _read_gpu(self, index: int) -> GpuState | None:
        nvml, value = self._nvml, self._value
        assert nvml is not None
        handle = value(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return None
        memory = value(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = value(nvml.nvmlDeviceGetUtilizationRates, handle)
        return GpuState(
            index,
            model=_text(value(nvml.nvmlDeviceGetName, handle)),
            memory_bytes=int(memory.total) if memory else 0,
            memory_used_bytes=int(memory.used) if memory else 0,
            utilisation=rates.gpu / 100 if rates else None,
            temperature=value(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        )

    def _value(self, call: Callable[..., Any], *arguments: object) -> Any | None:
        """Return the result of a call, or None: slices (MIG) and virtual GPUs do not report everything."""
        assert self._nvml is not None
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None


def _text(name: bytes | str | None) -> str:
    """Return a name. Older versions of pynvml return bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name or ""

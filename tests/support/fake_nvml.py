"""Stands in for pynvml: two H100, of which the second is a slice (MIG) that reports neither use nor temperature."""

from __future__ import annotations

from types import SimpleNamespace

NVML_TEMPERATURE_GPU = 0
GIB = 1 << 30


class NVMLError(Exception):
    """The driver cannot do what was asked."""


def nvmlInit() -> None:
    """Succeed."""


def nvmlShutdown() -> None:
    """Succeed."""


def nvmlDeviceGetCount() -> int:
    return 2


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    if index not in (0, 1):
        raise NVMLError
    return index


def nvmlDeviceGetName(handle: int) -> str | bytes:
    return b"NVIDIA H100 80GB HBM3" if handle else "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=80 * GIB, used=(61 - handle * 60) * GIB)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    if handle:
        raise NVMLError
    return SimpleNamespace(gpu=93, memory=10)


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    if handle or sensor != NVML_TEMPERATURE_GPU:
        raise NVMLError
    return 71

"""What is read of the GPUs of a machine. The driver is a stand-in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hai_backend.domain.gpu import GpuState
from hai_backend.launch import nvml
from hai_backend.launch.nvml import GpuReader
from tests.support import fake_nvml
from tests.support.fake_nvml import GIB

MODEL = "NVIDIA H100 80GB HBM3"
WHOLE = GpuState(0, MODEL, 80 * GIB, 61 * GIB, 0.93, 71)
SLICE = GpuState(1, MODEL, 80 * GIB, GIB)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "library", lambda: fake_nvml)


@pytest.mark.parametrize(
    ("indices", "states"),
    [
        pytest.param(None, (WHOLE, SLICE), id="all"),
        pytest.param((1,), (SLICE,), id="what a slice does not report is left out"),
        pytest.param((0, 7), (WHOLE,), id="a GPU that does not answer is left out"),
        pytest.param((), (), id="none"),
    ],
)
def test_gpus_are_read(
    driver: None, indices: Sequence[int] | None, states: tuple[GpuState, ...]
) -> None:
    assert GpuReader(indices).read() == states


def test_gpus_are_counted(driver: None) -> None:
    assert nvml.count() == 2


@pytest.mark.parametrize("missing", [True, False], ids=["no driver", "no GPUs"])
def test_a_machine_without_gpus_has_none(monkeypatch: pytest.MonkeyPatch, missing: bool) -> None:
    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetCount", lambda: 0)
    monkeypatch.setattr(nvml, "library", lambda: None if missing else fake_nvml)
    assert (nvml.count(), GpuReader().read()) == (0, ())


def test_a_driver_that_fails_shows_no_gpus(driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise fake_nvml.NVMLError

    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetCount", fail)
    assert (nvml.count(), GpuReader().read()) == (0, ())

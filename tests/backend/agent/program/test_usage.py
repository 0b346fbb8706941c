"""The measurements in heartbeats."""

from __future__ import annotations

import os
import time

import pytest

from hai_backend.agent.program.usage import Usage
from hai_backend.launch import nvml
from hai_backend.launch.processes import TICKS_PER_SECOND, Process, read_process
from tests.support import fake_nvml
from tests.support.fake_nvml import GIB


def process(pid: int, ticks: int, memory: int = 0) -> Process:
    return Process(pid, parent=1, session=1, started=5, cpu_ticks=ticks, resident_bytes=memory)


def test_memory_is_that_of_all_processes():
    beat = Usage(()).measure([process(1, 0, 1000), process(2, 0, 234)])
    assert beat.memory_bytes == 1234
    assert not beat.HasField("gpu_utilisation")


def test_cpus_are_the_mean_since_the_last_measure(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    usage = Usage(())
    usage.measure([process(1, 50 * TICKS_PER_SECOND)])
    now[0] += 10
    beat = usage.measure([process(1, 70 * TICKS_PER_SECOND), process(2, 5 * TICKS_PER_SECOND)])
    assert beat.cpus == pytest.approx(2.5)


def test_gpus_that_are_not_there_are_not_measured():
    assert not Usage((0, 1)).measure([]).HasField("gpu_utilisation")


def test_gpus_are_reported_one_by_one_and_together(monkeypatch):
    monkeypatch.setattr(nvml, "library", lambda: fake_nvml)
    beat = Usage(None).measure([])
    assert [(gpu.index, gpu.memory_used_bytes // GIB) for gpu in beat.gpus] == [(0, 61), (1, 1)]
    assert [gpu.HasField("temperature") for gpu in beat.gpus] == [True, False]
    assert (beat.gpu_utilisation, beat.gpu_memory_bytes) == (0.93, 62 * GIB)


def test_a_process_is_seen_as_it_is():
    me = read_process(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert me.resident_bytes > 1_000_000

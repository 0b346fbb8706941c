"""Makes the usage of the demo cluster in the last hours, and audited calls. They are the same each time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hai.client.fake.server import FakeClient

_GIB = 1 << 30
_MINUTES, _TASK_MINUTES = 100, 60


def measure(client: FakeClient) -> None:
    """Add usage of the first ranks of a task and of the cluster up to now, and a few audited calls."""
    now = client.world.now
    for minute in range(_MINUTES + 1):
        client.world.now = now - 60.0 * (_MINUTES - minute)
        if _MINUTES - minute <= _TASK_MINUTES:
            _measure_ranks(client, minute)
        _measure_cluster(client, minute)
    client.world.now = now - 900.0
    client.audited("CordonNode", "gpu-15", actor="dave", what="name='gpu-15' reason='fan replaced'")
    client.world.now = now - 300.0
    client.audited("StopTask", "7", "PERMISSION_DENIED", actor="bob", what="id=7")
    client.world.now = now


def measure_now(client: FakeClient, task: int, shares: tuple[float, ...]) -> None:
    """Add the current usage of the ranks of a task; `shares` are the used shares of their GPUs."""
    for rank, busy in enumerate(shares):
        client.measure(
            task,
            rank=rank,
            cpus=40 * busy,
            memory_bytes=int(400 * busy * _GIB),
            gpu_utilisation=busy,
            gpu_memory_bytes=int((200 + 300 * busy) * _GIB),
        )


def _measure_ranks(client: FakeClient, minute: int) -> None:
    for rank in range(2):
        is_saving = minute % 25 == 24
        busy = 0.05 if is_saving else 0.9 + 0.06 * math.sin(minute / 3 + rank)
        memory = int((60 + minute / 2 + 10 * rank) * _GIB)
        client.measure(
            2,
            rank=rank,
            cpus=24.0 if is_saving else 9 + 2 * math.sin(minute / 4),
            cpus_max=30.0,
            memory_bytes=memory,
            memory_bytes_max=memory + 4 * _GIB,
            gpu_utilisation=busy,
            gpu_utilisation_max=1.0,
            gpu_memory_bytes=500 * _GIB,
            gpu_memory_bytes_max=520 * _GIB,
        )


def _measure_cluster(client: FakeClient, minute: int) -> None:
    busy = 10 + round(6 * math.sin(minute / 30))
    waiting = 5 + round(4 * math.cos(minute / 25))
    client.measure_cluster(
        nodes=18,
        busy_nodes=busy,
        gpus=144,
        booked_gpus=8 * busy,
        gpu_utilisation=0.8 + 0.1 * math.sin(minute / 7),
        waiting_tasks=waiting,
    )

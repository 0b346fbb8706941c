"""Converts the state of GPUs to and from messages."""

from __future__ import annotations

from collections.abc import Iterable

from hai.v1 import node_pb2 as pb
from hai_backend.domain.gpu import GpuState


def gpus_to_proto(states: Iterable[GpuState]) -> list[pb.Gpu]:
    """Convert the GPUs of a node or of a rank."""
    return [
        pb.Gpu(
            index=state.index,
            model=state.model,
            memory_bytes=state.memory_bytes,
            memory_used_bytes=state.memory_used_bytes,
            utilisation=state.utilisation,
            temperature=state.temperature,
        )
        for state in states
    ]


def gpus_from_proto(gpus: Iterable[pb.Gpu]) -> list[GpuState]:
    """Convert what an agent reports."""
    return [
        GpuState(
            gpu.index,
            gpu.model,
            gpu.memory_bytes,
            gpu.memory_used_bytes,
            gpu.utilisation if gpu.HasField("utilisation") else None,
            gpu.temperature if gpu.HasField("temperature") else None,
        )
        for gpu in gpus
    ]

"""The state of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_BYTES = 1 << 60
_MODEL_CHARS = 64


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU as its driver reports it. Values that the driver does not report are None.

    `index` is that within the node, `utilisation` is from 0 to 1, `temperature` is in degrees Celsius.
    """

    index: int
    model: str = ""
    memory_bytes: int = 0
    memory_used_bytes: int = 0
    utilisation: float | None = None
    temperature: int | None = None


def read_gpu_state(state: GpuState) -> GpuState | None:
    """Return the report of an agent with its model on one line, or None if its numbers are invalid."""
    sound = state.utilisation is None or 0 <= state.utilisation <= 1
    sound = sound and (state.temperature is None or -300 < state.temperature < 1000)
    sound = sound and 0 <= state.memory_used_bytes <= _MOST_BYTES
    if not (sound and 0 <= state.memory_bytes <= _MOST_BYTES):
        return None
    model = "".join(c for c in state.model if c.isprintable())[:_MODEL_CHARS]
    return GpuState(
        state.index,
        model,
        state.memory_bytes,
        state.memory_used_bytes,
        state.utilisation,
        state.temperature,
    )

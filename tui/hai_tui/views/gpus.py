"""The real GPUs of nodes and ranks: models, memory, use and temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hai.client.text.formatting import size_text
from hai.v1.node_pb2 import Gpu, Node
from hai_tui.formatting.table import Column, View
from hai_tui.i18n import text

_GIB = 2**30
_VENDOR = "NVIDIA "


def model_text(gpus: Sequence[Gpu]) -> str:
    """Return the models without the vendor, such as `H100 80GB HBM3`."""
    return ", ".join(dict.fromkeys(gpu.model.removeprefix(_VENDOR) for gpu in gpus if gpu.model))


def use_text(gpus: Sequence[Gpu]) -> str:
    """Return mean utilisation, memory in use of all, and the highest temperature: `93% 61/80G 71°C`."""
    if not gpus:
        return "-"
    rates = [gpu.utilisation for gpu in gpus if gpu.HasField("utilisation")]
    degrees = [gpu.temperature for gpu in gpus if gpu.HasField("temperature")]
    used = sum(gpu.memory_used_bytes for gpu in gpus) / _GIB
    memory = sum(gpu.memory_bytes for gpu in gpus) / _GIB
    parts = [f"{used:.0f}/{memory:.0f}G"]
    if rates:
        parts.insert(0, f"{sum(rates) / len(rates):.0%}")
    if degrees:
        parts.append(f"{max(degrees)}°C")
    return " ".join(parts)


def sentence(gpu: Gpu) -> str:
    """Return a line about one GPU for the terminal app."""
    memory = text(
        "gpu.memory", used=size_text(gpu.memory_used_bytes), total=size_text(gpu.memory_bytes)
    )
    parts = [memory]
    if gpu.HasField("utilisation"):
        parts.insert(0, text("gpu.use", part=f"{gpu.utilisation:.0%}"))
    if gpu.HasField("temperature"):
        parts.append(f"{gpu.temperature} °C")
    return f"GPU {gpu.index} {model_text([gpu])}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU with the name of its node."""

    node: str
    gpu: Gpu


def gpus_of_nodes(nodes: Sequence[Node]) -> list[NodeGpu]:
    """Return the GPUs of nodes, one row for each."""
    return [NodeGpu(node.name, gpu) for node in nodes for gpu in node.gpu_devices]


GPUS = View(
    key="gpus",
    name=lambda row: f"{row.node}/{row.gpu.index}",
    columns=(
        Column("node", lambda row, now: row.node),
        Column("gpu", lambda row, now: str(row.gpu.index), right=True),
        Column("model", lambda row, now: model_text([row.gpu]) or "-"),
        Column("memory", lambda row, now: size_text(row.gpu.memory_bytes), right=True),
        Column("used", lambda row, now: size_text(row.gpu.memory_used_bytes), right=True),
        Column("utilisation", lambda row, now: _utilisation_text(row.gpu), right=True),
        Column("temperature", lambda row, now: _temperature_text(row.gpu), right=True),
    ),
)


def _utilisation_text(gpu: Gpu) -> str:
    return f"{gpu.utilisation:.0%}" if gpu.HasField("utilisation") else "-"


def _temperature_text(gpu: Gpu) -> str:
    return f"{gpu.temperature}°C" if gpu.HasField("temperature") else "-"

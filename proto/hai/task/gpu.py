"""Reads the state of this node's GPUs with nvidia-smi, which is part of the driver."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

Row = tuple[str, ...]
Query = Callable[[str, Sequence[str]], "list[Row] | None"]

_SECONDS = 20.0  # a broken GPU makes nvidia-smi hang


def query(table: str, columns: Sequence[str]) -> list[Row] | None:
    """Return the rows of `nvidia-smi --query-TABLE=COLUMNS`; None if there is no driver or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    argv = [program, f"--query-{table}={','.join(columns)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return [
        tuple(cell.strip() for cell in line.split(",")) for line in done.stdout.splitlines() if line
    ]


def print_gpu_info(pid: int | None = None, query: Query = query) -> None:
    """Print the usage of each GPU, and the memory on it that process `pid` uses (all processes if None)."""
    cards = query(
        "gpu", ("index", "uuid", "name", "utilization.gpu", "memory.used", "memory.total")
    )
    if not cards:
        print("no NVIDIA GPU is visible here", flush=True)
        return
    holders = query("compute-apps", ("gpu_uuid", "pid", "used_memory")) or []
    for index, uuid, name, busy, used, total in cards:
        print(f"GPU {index} {name}: {busy} % busy, {used} of {total} MiB", flush=True)
        for holder in holders:
            if holder[0] == uuid and pid in (None, int(holder[1])):
                print(f"    process {holder[1]}: {holder[2]} MiB", flush=True)

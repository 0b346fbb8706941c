"""Reads limit and use of memory of this container from cgroup v2 or cgroup v1, or of the machine."""

from __future__ import annotations

from pathlib import Path

_FILES = (
    ("memory.current", "memory.max", "memory.stat", "inactive_file"),
    (
        "memory/memory.usage_in_bytes",
        "memory/memory.limit_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)
_NO_LIMIT = 1 << 60


def read_memory(
    root: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")
) -> dict[str, int | str]:
    """Return `{used, limit, of}` in bytes. Page cache that the kernel would drop first does not count as used."""
    total, available = _machine_memory(meminfo)
    for current, maximum, stat, cache in _FILES:
        limit = _read_number(root / maximum)
        if 0 < limit < min(total or _NO_LIMIT, _NO_LIMIT):
            used = _read_number(root / current) - _read_table(root / stat).get(cache, 0)
            return {"used": max(0, used), "limit": limit, "of": "container"}
    return {"used": total - available, "limit": total, "of": "machine"}


def _machine_memory(meminfo: Path) -> tuple[int, int]:
    table = _read_table(meminfo)
    return table.get("MemTotal:", 0) * 1024, table.get("MemAvailable:", 0) * 1024


def _read_table(path: Path) -> dict[str, int]:
    lines = [line.split() for line in _read_text(path).splitlines()]
    return {
        fields[0]: int(fields[1]) for fields in lines if len(fields) > 1 and fields[1].isdigit()
    }


def _read_number(path: Path) -> int:
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else 0


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

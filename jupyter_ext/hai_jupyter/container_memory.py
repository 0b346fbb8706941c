"""Memory limit and use of this container: from cgroup v2, cgroup v1, or the machine."""

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


def memory(
    root: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")
) -> dict[str, int | str]:
    """`{used, limit, of}` in bytes; page cache that would be dropped first does not count as used."""
    total, available = _machine(meminfo)
    for current, maximum, stat, cache in _FILES:
        limit = _number(root / maximum)
        if 0 < limit < min(total or _NO_LIMIT, _NO_LIMIT):
            used = _number(root / current) - _table(root / stat).get(cache, 0)
            return {"used": max(0, used), "limit": limit, "of": "container"}
    return {"used": total - available, "limit": total, "of": "machine"}


def _machine(meminfo: Path) -> tuple[int, int]:
    found = _table(meminfo)
    return found.get("MemTotal:", 0) * 1024, found.get("MemAvailable:", 0) * 1024


def _table(path: Path) -> dict[str, int]:
    lines = [line.split() for line in _text(path).splitlines()]
    return {
        fields[0]: int(fields[1]) for fields in lines if len(fields) > 1 and fields[1].isdigit()
    }


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

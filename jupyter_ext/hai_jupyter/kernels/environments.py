"""Reads environments from the files of haienv (docs/contributing/environments.md), so that Jupyter can offer kernels.

Files of other users may be hostile: only regular files of a bounded size are read, no link is followed except
`current`, whose form is checked, and a file that cannot be parsed is ignored.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hai.toml import loads

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CURRENT = re.compile(r"\.\./(\.layers/[0-9a-f]{24})")
_LAYER = re.compile(r"[0-9a-f]{24}")
_MAX_FILE_BYTES = 256 * 1024
_MAX_OWNER_BYTES = 2 << 20  # Python's TOML parser takes a second for each MiB
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that is ready."""

    root: Path
    owner: str
    name: str
    python: str
    has_kernel: bool

    def __str__(self) -> str:
        return f"{self.name}[{self.owner}]"


def default_root() -> Path:
    """Return the directory in which haienv keeps environments by default."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.environ.get("HAIENV_HOME") or Path(data).expanduser() / "haienv")


def ready(root: Path) -> Iterator[Environment]:
    """Yield the environments that can be used, by owner and name. The number of bytes read per owner is limited."""
    for owner in _directories(root):
        remaining_bytes = _MAX_OWNER_BYTES
        for name in _directories(root / owner):
            label, layer = root / owner / name / "env.toml", _current_layer(root / owner / name)
            if layer is None:
                continue
            remaining_bytes -= _file_size(label) + _file_size(layer / "layer.toml")
            if remaining_bytes < 0:
                break
            if _read_toml(label) and (environment := _read_environment(root, owner, name, layer)):
                yield environment


def _read_environment(root: Path, owner: str, name: str, layer: Path) -> Environment | None:
    described = _read_toml(layer / "layer.toml")
    python, layers = described.get("python"), [layer, *_parents(root, described)]
    if isinstance(python, str) and _can_start(described, layers):
        return Environment(root, owner, name, python, _has_kernel(described, layers))
    return None


def _file_size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _directories(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(name for name in names if _NAME.fullmatch(name))


def _current_layer(environment: Path) -> Path | None:
    try:
        if not stat.S_ISREG(os.lstat(environment / "env.toml").st_mode):
            return None
        current = _CURRENT.fullmatch(os.readlink(environment / "current"))
    except OSError:
        return None
    return environment.parent / current[1] if current else None


def _can_start(described: dict[str, Any], layers: list[Path]) -> bool:
    """Return whether haienv would start a kernel in the environment: the machine fits, and all layers are readable."""
    machine_fits = str(described.get("platform", "")).endswith(os.uname().machine)
    return (
        (machine_fits or not described.get("platform"))
        and os.access(layers[0] / "bin" / "python", os.X_OK)
        and all(os.access(layer, os.R_OK | os.X_OK) for layer in layers)
    )


def _parents(root: Path, described: dict[str, Any]) -> Iterator[Path]:
    for parent in _tables(described, "parents"):
        owner, digits = str(parent.get("owner")), str(parent.get("layer"))
        if _NAME.fullmatch(owner) and _LAYER.fullmatch(digits):
            yield root / owner / ".layers" / digits


def _has_kernel(described: dict[str, Any], layers: list[Path]) -> bool:
    """Return whether the environment, a layer that it extends, or the Python below has ipykernel."""
    sites = [Path(site) for site in _list(described, "sites") if isinstance(site, str)]
    packages = [p for each in layers for p in each.glob("lib/python3*/site-packages")]
    return any((directory / "ipykernel").is_dir() for directory in (*packages, *sites))


def _tables(described: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [table for table in _list(described, key) if isinstance(table, dict)]


def _list(described: dict[str, Any], key: str) -> list[Any]:
    value = described.get(key)
    return value if isinstance(value, list) else []


def _read_toml(path: Path) -> dict[str, Any]:
    """Return the table of a file; empty if it cannot be read or belongs to a newer haienv."""
    with suppress(OSError, ValueError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_FILE_BYTES:
                table = loads(file.read(_MAX_FILE_BYTES).decode())
                return table if table.get("schema") == _SCHEMA else {}
    return {}

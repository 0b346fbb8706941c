"""Environments of haienv, read from their files (docs/contributing/environments.md), so that Jupyter can offer kernels.

Files of other users may be hostile: only regular files of a bounded size are read, links are looked at and not followed
(but `current`, whose form is checked), and what does not parse is left out.
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
_MAX_BYTES = 256 * 1024
_MAX_BYTES_OF_ONE = 2 << 20  # Python's reader of TOML takes a second for each MiB
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Environment:
    """One that is ready."""

    root: Path
    owner: str
    name: str
    python: str
    has_kernel: bool

    def __str__(self) -> str:
        return f"{self.name}[{self.owner}]"


def default_root() -> Path:
    """Where haienv keeps environments when nobody says otherwise."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.environ.get("HAIENV_HOME") or Path(data).expanduser() / "haienv")


def ready(root: Path) -> Iterator[Environment]:
    """Those that can be used and read, by owner and name; of one owner, so much is read that nobody waits long."""
    for owner in _directories(root):
        left = _MAX_BYTES_OF_ONE
        for name in _directories(root / owner):
            label, layer = root / owner / name / "env.toml", _layer(root / owner / name)
            if layer is None:
                continue
            left -= _bytes(label) + _bytes(layer / "layer.toml")
            if left < 0:
                break
            if _toml(label) and (found := _described(root, owner, name, layer)):
                yield found


def _described(root: Path, owner: str, name: str, layer: Path) -> Environment | None:
    described = _toml(layer / "layer.toml")
    python, layers = described.get("python"), [layer, *_parents(root, described)]
    if isinstance(python, str) and _works(described, layers):
        return Environment(root, owner, name, python, _has_kernel(described, layers))
    return None


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _directories(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(name for name in found if _NAME.fullmatch(name))


def _layer(environment: Path) -> Path | None:
    try:
        if not stat.S_ISREG(os.lstat(environment / "env.toml").st_mode):
            return None
        current = _CURRENT.fullmatch(os.readlink(environment / "current"))
    except OSError:
        return None
    return environment.parent / current[1] if current else None


def _works(described: dict[str, Any], layers: list[Path]) -> bool:
    """As far as haienv would not refuse to start a kernel in it: on this kind of machine, with all that it extends."""
    here = str(described.get("platform", "")).endswith(os.uname().machine)
    return (
        (here or not described.get("platform"))
        and os.access(layers[0] / "bin" / "python", os.X_OK)
        and all(os.access(layer, os.R_OK | os.X_OK) for layer in layers)
    )


def _parents(root: Path, described: dict[str, Any]) -> Iterator[Path]:
    for parent in _tables(described, "parents"):
        owner, digits = str(parent.get("owner")), str(parent.get("layer"))
        if _NAME.fullmatch(owner) and _LAYER.fullmatch(digits):
            yield root / owner / ".layers" / digits


def _has_kernel(described: dict[str, Any], layers: list[Path]) -> bool:
    """Its own ipykernel, or that of a layer that it extends, or of a Python outside."""
    sites = [Path(site) for site in _list(described, "sites") if isinstance(site, str)]
    packages = [p for each in layers for p in each.glob("lib/python3*/site-packages")]
    return any((place / "ipykernel").is_dir() for place in (*packages, *sites))


def _tables(described: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [table for table in _list(described, key) if isinstance(table, dict)]


def _list(described: dict[str, Any], key: str) -> list[Any]:
    found = described.get(key)
    return found if isinstance(found, list) else []


def _toml(path: Path) -> dict[str, Any]:
    """Empty: it cannot be read, or it is of a newer haienv."""
    with suppress(OSError, ValueError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(file.fileno())
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= _MAX_BYTES:
                table = loads(file.read(_MAX_BYTES).decode())
                return table if table.get("schema") == _SCHEMA else {}
    return {}

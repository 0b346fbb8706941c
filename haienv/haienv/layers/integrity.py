"""Compares the files of a layer with the RECORD of each distribution, and its lock with the recorded hash."""

from __future__ import annotations

import csv
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from haienv.errors import Broken
from haienv.layers.installed import dist_infos, versions
from haienv.layers.pth_links import HAIENV_FILES
from haienv.store.layout import LOCK_FILE
from haienv.store.lock_file import parse_lock, sha256_hex
from haienv.store.registry import Environment
from haienv.store.untrusted_io import LOCK_LIMIT, Unreadable, read_text, text_or_empty


@dataclass(frozen=True, slots=True)
class Difference:
    """`kind` is changed, missing, added, or lock (the lock differs from the one that the layer was built from)."""

    kind: str
    path: str


def differences(environment: Environment) -> list[Difference]:
    """Differences in the layer of an environment, without its parents."""
    found = layer_differences(
        environment.path, environment.sites[0], environment.recorded_layer.lock_hash
    )
    if not found and environment.fault:
        raise Broken(f"environment {environment} is broken: {environment.fault}")
    return found


def layer_differences(layer: Path, site: Path, lock_hash: str) -> list[Difference]:
    """Differences in a layer that may not be published yet."""
    recorded: set[Path] = set()
    found = [*_lock(layer / LOCK_FILE, site, lock_hash)]
    for _, _, info in dist_infos(site):
        for path, digest in _record(info, site):
            recorded.add(path)
            if fault := _fault(path, digest):
                found.append(Difference(fault, str(path)))
    found += [Difference("added", str(path)) for path in _unrecorded(site, recorded)]
    return sorted(found, key=lambda each: (each.path, each.kind))


def _lock(path: Path, site: Path, lock_hash: str) -> Iterator[Difference]:
    text = text_or_empty(path, LOCK_LIMIT)
    lock = parse_lock(text)
    if lock is None or sha256_hex(text) != lock_hash:
        yield Difference("lock", str(path))
        return
    present = versions([site])
    for pin in lock.pins:
        if pin.name not in present:
            yield Difference("missing", f"{site}/{pin.name}")


def _record(info: Path, site: Path) -> Iterator[tuple[Path, str]]:
    try:
        lines = read_text(info / "RECORD", LOCK_LIMIT).splitlines()
    except Unreadable:
        return
    with suppress(csv.Error):  # files after a broken line count as added
        for row in csv.reader(lines):
            if row and "__pycache__/" not in row[0]:
                yield Path(os.path.normpath(site / row[0])), row[1] if len(row) > 1 else ""


def _fault(path: Path, digest: str) -> str:
    if path.name in HAIENV_FILES:
        return ""
    if not path.is_file():
        return "missing"
    kind, _, expected = digest.partition("=")
    if kind != "sha256":
        return ""
    with path.open("rb") as file:
        actual = urlsafe_b64encode(_digest(file)).rstrip(b"=").decode()
    return "" if actual == expected else "changed"


def _digest(file: object) -> bytes:
    from hashlib import file_digest

    return file_digest(file, "sha256").digest()  # type: ignore[arg-type]


def _unrecorded(site: Path, recorded: set[Path]) -> Iterator[Path]:
    for path in site.rglob("*"):
        known = (
            path in recorded or path.name in HAIENV_FILES or path.parent.name.endswith(".dist-info")
        )
        if not known and "__pycache__" not in path.parts and path.is_file():
            yield path

"""Compares the files of a layer with the RECORD of each distribution, and its lock with the recorded hash."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from haienv.digests import hash_file, hash_text, to_record_hash
from haienv.errors import Broken
from haienv.layers.installed import list_dist_infos, read_versions
from haienv.layers.pth_links import HAIENV_FILES
from haienv.store.layout import LOCK_FILE
from haienv.store.registry import Environment
from haienv.store.requirements_lock import parse_lock
from haienv.store.untrusted_io import LOCK_LIMIT_BYTES, Unreadable, read_text, read_text_or_empty


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a layer and its records.

    `kind` is `changed`, `missing` or `added`, or `lock` if the lock is not the one that the layer was built from.
    """

    kind: str
    path: str


def compare_environment(environment: Environment) -> list[Difference]:
    """Return the differences in the layer of an environment, without its parents. Raise Broken."""
    lock_hash = environment.recorded_layer.lock_hash
    differences = compare_layer(environment.path, environment.sites[0], lock_hash)
    if not differences and environment.fault:
        raise Broken(f"environment {environment} is broken: {environment.fault}")
    return differences


def compare_layer(layer: Path, site: Path, lock_hash: str) -> list[Difference]:
    """Return the differences in a layer, which need not be published yet."""
    recorded: set[Path] = set()
    differences = [*_compare_lock(layer / LOCK_FILE, site, lock_hash)]
    for _, _, info in list_dist_infos(site):
        for path, record_hash in _read_record(info, site):
            recorded.add(path)
            if kind := _compare_file(path, record_hash):
                differences.append(Difference(kind, str(path)))
    differences += [Difference("added", str(path)) for path in _find_unrecorded(site, recorded)]
    return sorted(differences, key=lambda each: (each.path, each.kind))


def _compare_lock(path: Path, site: Path, lock_hash: str) -> Iterator[Difference]:
    text = read_text_or_empty(path, LOCK_LIMIT_BYTES)
    lock = parse_lock(text)
    if lock is None or hash_text(text) != lock_hash:
        yield Difference("lock", str(path))
        return
    installed = read_versions([site])
    for pin in lock.pins:
        if pin.name not in installed:
            yield Difference("missing", f"{site}/{pin.name}")


def _read_record(info: Path, site: Path) -> Iterator[tuple[Path, str]]:
    try:
        lines = read_text(info / "RECORD", LOCK_LIMIT_BYTES).splitlines()
    except Unreadable:
        return
    with suppress(csv.Error):  # files after an invalid line count as added
        for row in csv.reader(lines):
            if row and "__pycache__/" not in row[0]:
                yield Path(os.path.normpath(site / row[0])), row[1] if len(row) > 1 else ""


def _compare_file(path: Path, record_hash: str) -> str:
    """Return the kind of difference of a file; empty if there is none."""
    if path.name in HAIENV_FILES:
        return ""
    if not path.is_file():
        return "missing"
    if not record_hash.startswith("sha256="):
        return ""
    with path.open("rb") as file:
        return "" if to_record_hash(hash_file(file)) == record_hash else "changed"


def _find_unrecorded(site: Path, recorded: set[Path]) -> Iterator[Path]:
    for path in site.rglob("*"):
        is_expected = (
            path in recorded or path.name in HAIENV_FILES or path.parent.name.endswith(".dist-info")
        )
        if not is_expected and "__pycache__" not in path.parts and path.is_file():
            yield path

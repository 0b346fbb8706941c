"""Reads `venv.db` of HAI's haienv: SQLite with pickled rows.

A pickle can call any function, so the reader builds plain values for three class names only. Rows that need other
classes, and large rows, are refused.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import Unpickler, UnpicklingError
from typing import Any

from haienv.errors import UsageError

_TABLES = ("haienv", "venv_config", "venv")
_CLASSES = ("HaienvConfig", "VenvConfig", "Config")
_MAX_ROW_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LegacyEnvironment:
    """A row. If the row cannot be read, `fault` says why."""

    name: str
    path: str = ""
    python: str = ""
    extends: str = ""
    search_dirs: tuple[str, ...] = ()
    bin_dirs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    fault: str = ""


class _Row:
    """A configuration that was pickled. It has attributes only."""


class _RestrictedUnpickler(Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _CLASSES:
            return _Row
        if (module, name) in (("copyreg", "_reconstructor"), ("copy_reg", "_reconstructor")):
            return _reconstructed
        if name == "object" and module in ("builtins", "__builtin__"):
            return object
        raise UnpicklingError(f"it needs {module}.{name}")


def _reconstructed(kind: type, base: type, state: object) -> object:
    if kind is not _Row or base is not object or state is not None:
        raise UnpicklingError("it is not a configuration")
    return _Row()


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def read_rows(path: Path) -> list[LegacyEnvironment]:
    """Return all rows, sorted by name. The file is opened read-only."""
    try:
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) as database:
            rows = {r.name: r for table in reversed(_TABLES) for r in _read_table(database, table)}
    except sqlite3.Error as error:
        raise UsageError(f"{path} is not a venv.db: {error}") from error
    finally:
        if "database" in locals():  # `with` does not close a connection
            database.close()
    return [rows[name] for name in sorted(rows)]


def _read_table(database: sqlite3.Connection, table: str) -> Iterator[LegacyEnvironment]:
    table_exists = database.execute(
        "select 1 from sqlite_master where type='table' and name=?", (table,)
    )
    if table_exists.fetchone():
        for name, value in database.execute(f"select key, value from {table}"):
            yield _unpickle(str(name), value)


def _unpickle(name: str, value: object) -> LegacyEnvironment:
    if not isinstance(value, bytes) or len(value) > _MAX_ROW_BYTES:
        return LegacyEnvironment(name, fault="its row is not a configuration")
    try:
        loaded = _RestrictedUnpickler(io.BytesIO(value)).load()
        attributes = loaded if isinstance(loaded, dict) else vars(loaded)
        return _from_attributes(name, attributes)
    except (UnpicklingError, TypeError, ValueError, EOFError, AttributeError, ImportError,
            IndexError, KeyError, MemoryError, RecursionError) as error:  # fmt: skip
        return LegacyEnvironment(name, fault=f"its row is refused: {error}")


def _from_attributes(name: str, attributes: dict[str, Any]) -> LegacyEnvironment:
    return LegacyEnvironment(
        name,
        _get_text(attributes, "path"),
        _get_text(attributes, "py"),
        _get_text(attributes, "extend_env"),
        _get_texts(attributes, "extra_search_dir"),
        _get_texts(attributes, "extra_search_bin_dir"),
        _get_texts(attributes, "extra_environment"),
    )


def _get_text(attributes: dict[str, Any], key: str) -> str:
    value = attributes.get(key) or ""
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a string")
    return value


def _get_texts(attributes: dict[str, Any], key: str) -> tuple[str, ...]:
    values = attributes.get(key) or ()
    if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"{key} is not a list of strings")
    return tuple(values)

"""Converts frozen dataclasses to JSON and back without loss, to the last bit of a float.

A dataclass becomes an object with its field names; fields with their default value are omitted. Reading is strict: an
unknown field, a missing field or a wrong type raises Invalid with the path. Converters are built once per type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from math import isfinite
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from hai_backend.domain.errors import Invalid, Violation

T = TypeVar("T")
Write = Callable[[Any], Any]
Read = Callable[[Any, str], Any]  # the JSON value, and its path

KIND = "kind"
"""The field with the name of the dataclass, if an object can be one of several dataclasses."""

_MAX_CHARS = 60  # of a wrong value in a message
_NUMBERS = {
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
}  # which JSON does not have


def to_json(value: Any, kind: Any = None) -> Any:
    """Convert a value to lists, dicts, strings and numbers. `kind` is its declared type, by default its class."""
    form: Any = type(value) if kind is None else kind
    return _writer(form)(value)


def dump_json(found: Any) -> str:
    """Convert to a JSON text like json.dumps, but in small steps, so that a long list does not block other threads."""
    if isinstance(found, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {dump_json(each)}' for key, each in found.items())}}}"
    if isinstance(found, list):
        return f"[{', '.join(json.dumps(each) for each in found)}]"
    return json.dumps(found)


def from_json(kind: type[T], found: Any, where: str = "") -> T:
    """Convert JSON back to a value. Raises Invalid."""
    form: Any = kind
    value: T = _reader(form)(found, where)
    return value


def invalid_value(where: str, message: str) -> Invalid:
    """Return the error for an invalid value at a path."""
    return Invalid((Violation(where, message),), reason="BAD_JSON")


@cache
def _writer(kind: Any) -> Write:
    if is_dataclass(kind):
        return _object_writer(kind)
    if kind is float:
        return lambda number: number if isfinite(number) else str(float(number))
    if get_origin(kind) is UnionType:
        return _union_writer(get_args(kind))
    if get_origin(kind) is tuple:
        item = _writer(get_args(kind)[0])
        return lambda items: [item(each) for each in items]
    if get_origin(kind) is frozenset:
        return sorted
    if get_origin(kind) is not None:  # a mapping
        value = _writer(get_args(kind)[1])
        return lambda found: {key: value(each) for key, each in found.items()}
    if issubclass(kind, Enum):
        return (
            (lambda level: level.name)
            if issubclass(kind, IntEnum)
            else lambda read_enum: read_enum.value
        )
    return lambda plain: plain


def _union_writer(kinds: tuple[Any, ...]) -> Write:
    kinds_but_none = [kind for kind in kinds if kind is not type(None)]
    if len(kinds_but_none) == 1:
        some = _writer(kinds_but_none[0])
        return lambda value: None if value is None else some(value)
    named = {kind: (kind.__name__, _writer(kind)) for kind in kinds_but_none}

    def one(value: Any) -> Any:
        name, form = named[type(value)]
        return {KIND: name, **form(value)}

    return one


def _object_writer(kind: Any) -> Write:
    hints = get_type_hints(kind)
    parts = [(f.name, _default(f), _writer(hints[f.name])) for f in fields(kind)]

    def write(value: Any) -> Any:
        found = {}
        for name, default, form in parts:
            part = getattr(value, name)
            if part is not default and not _same(part, default):
                found[name] = form(part)
        return found

    return write


def _same(part: Any, default: Any) -> bool:
    """Return whether two values are equal to the last bit: 0, 0.0, -0.0 and False are four values."""
    if type(part) is not type(default) or part != default:
        return False
    return type(part) is not float or str(part) == str(default)


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default  # MISSING is equal to no value


@cache
def _reader(kind: Any) -> Read:
    if is_dataclass(kind):
        return _object_reader(kind)
    if kind is float:
        return _number
    if get_origin(kind) is UnionType:
        return _union_reader(get_args(kind))
    if get_origin(kind) in (tuple, frozenset):
        return _items_reader(get_origin(kind), _reader(get_args(kind)[0]))
    if get_origin(kind) is not None:
        return _mapping_reader(_reader(get_args(kind)[1]))
    if issubclass(kind, Enum):
        return _enum_reader(kind)
    return _plain_reader(kind)


def _plain_reader(kind: type[Any]) -> Read:
    def plain(found: Any, where: str) -> Any:
        return found if type(found) is kind else _wrong(found, where, kind.__name__)

    return plain


def _number(found: Any, where: str) -> Any:
    """Read a number. An integer stays an integer, so that values are equal bit by bit."""
    if type(found) in (float, int):
        return found
    number = _NUMBERS.get(found) if isinstance(found, str) else None
    return _wrong(found, where, "a number") if number is None else number


def _enum_reader(kind: type[Enum]) -> Read:
    by_name = issubclass(kind, IntEnum)
    members = {each.name if by_name else each.value: each for each in kind}

    def read_enum(found: Any, where: str) -> Any:
        member = members.get(found) if isinstance(found, str) else None
        return _wrong(found, where, f"one of {', '.join(members)}") if member is None else member

    return read_enum


def _union_reader(kinds: tuple[Any, ...]) -> Read:
    kinds_but_none = [kind for kind in kinds if kind is not type(None)]
    if len(kinds_but_none) == 1:
        some = _reader(kinds_but_none[0])
        return lambda found, where: None if found is None else some(found, where)
    named = {kind.__name__: _reader(kind) for kind in kinds_but_none}

    def one(found: Any, where: str) -> Any:
        name = found.get(KIND) if isinstance(found, dict) else None
        if not isinstance(name, str) or name not in named:
            return _wrong(name, f"{where}.{KIND}", f"one of {', '.join(named)}")
        return named[name]({key: each for key, each in found.items() if key != KIND}, where)

    return one


def _items_reader(collection: Any, item: Read) -> Read:
    def items(found: Any, where: str) -> Any:
        if not isinstance(found, list):
            return _wrong(found, where, "a list")
        return collection(item(each, f"{where}[{i}]") for i, each in enumerate(found))

    return items


def _mapping_reader(value: Read) -> Read:
    def mapping(found: Any, where: str) -> Any:
        if not isinstance(found, dict):
            return _wrong(found, where, "an object")
        return {key: value(each, f"{where}.{key}") for key, each in found.items()}

    return mapping


def _object_reader(kind: Any) -> Read:
    """Return the function that reads an object as this dataclass."""
    hints = get_type_hints(kind)
    parts = {f.name: _reader(hints[f.name]) for f in fields(kind)}
    needed = [f.name for f in fields(kind) if _default(f) is MISSING]

    def read_object(found: Any, where: str) -> Any:
        if not isinstance(found, dict):
            return _wrong(found, where, "an object")
        before = f"{where}." if where else ""
        if missing := [name for name in needed if name not in found]:
            raise invalid_value(before + missing[0], "is missing")
        if unknown := [name for name in found if name not in parts]:
            raise invalid_value(before + unknown[0], f"is not known; there are {', '.join(parts)}")
        return kind(**{name: parts[name](each, before + name) for name, each in found.items()})

    return read_object


def _wrong(found: Any, where: str, expected: str) -> Any:
    text = repr(found)
    text = text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"
    raise invalid_value(where, f"must be {expected}, not {text}")

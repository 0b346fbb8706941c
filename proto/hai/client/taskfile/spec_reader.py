"""Reads a tree into a TaskSpec.

This module checks shape and types, and collects every violation. The rules are in hai.client.taskfile.validation.
"""

from __future__ import annotations

import difflib
import math
import shlex
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from hai.client.errors import Violation
from hai.client.taskfile import fields
from hai.client.taskfile.tree import Items, Mark, Scalar, Table, Tree
from hai.client.taskfile.validation.rules import RULES, Level, Number
from hai.task.levels import PRIORITIES

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)


class InvalidValue(Exception):
    """A value that cannot be read. It becomes a violation at the position of the value."""


class SpecReader:
    """Fills messages from trees, and collects violations and the position of each value."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.marks: dict[str, Mark] = {}

    def read_message(self, target: Message, tree: Tree, path: str) -> None:
        self.marks[path] = tree.mark
        if not isinstance(tree, Table):
            self._add_violation(
                path, f"must be a mapping of keys, not {_describe_kind(tree)}", tree.mark
            )
            return
        known = fields.message_fields(fields.descriptor(target))
        first_marks: dict[str, Mark] = {}
        for entry in tree.entries:
            inner = f"{path}.{entry.key}" if path else entry.key
            if entry.key in first_marks:
                self._add_violation(
                    inner,
                    f"is given twice, first in line {first_marks[entry.key].line}",
                    entry.mark,
                )
            elif entry.key not in known:
                self._add_violation(
                    inner, unknown_key_message(entry.key, fields.descriptor(target)), entry.mark
                )
            else:
                self.read_field(target, known[entry.key], entry.value, inner)
            first_marks.setdefault(entry.key, entry.mark)
        self._check_required(target, tree, path)

    def read_field(self, target: Message, field: FieldDescriptor, tree: Tree, path: str) -> None:
        """Set one field. null leaves it unset."""
        self.marks[path] = tree.mark
        if isinstance(tree, Scalar) and tree.kind == "null":
            return
        if fields.is_map(field):
            self._read_map(getattr(target, field.name), field, tree, path)
        elif field.is_repeated:
            self._read_list(getattr(target, field.name), field, tree, path)
        elif field.message_type is not None:
            inner = getattr(target, field.name)
            inner.SetInParent()
            self.read_message(inner, tree, path)
        else:
            value = self._read_scalar(field, tree, path)
            if value is not None:
                setattr(target, field.name, value)

    def _read_map(self, target: Any, field: FieldDescriptor, tree: Tree, path: str) -> None:
        """Add the entries of a map field."""
        if not isinstance(tree, Table):
            self._add_violation(
                path, f"must be a mapping of names to values, not {_describe_kind(tree)}", tree.mark
            )
            return
        value_field = fields.map_value_field(field)
        first_marks: dict[str, Mark] = {}
        for entry in tree.entries:
            inner = f"{path}[{entry.key[:64]}]"
            if entry.key in first_marks:
                self._add_violation(
                    inner,
                    f"is given twice, first in line {first_marks[entry.key].line}",
                    entry.mark,
                )
                continue
            first_marks[entry.key] = self.marks[inner] = entry.mark
            value = self._read_scalar(value_field, entry.value, inner, booleans=True)
            if value is not None:
                target[entry.key] = value

    def _read_list(self, target: Any, field: FieldDescriptor, tree: Tree, path: str) -> None:
        """Append the entries of a list, or the words of one string if the field allows that."""
        if isinstance(tree, Scalar) and tree.kind != "null" and _is_splittable(field):
            self._extend_split(target, field, tree, path)
            return
        if not isinstance(tree, Items):
            self._add_violation(
                path, f"must be a list{_or_text_hint(field)}, not {_describe_kind(tree)}", tree.mark
            )
            return
        for index, item in enumerate(tree.values):
            inner = f"{path}[{index}]"
            self.marks[inner] = item.mark
            if field.message_type is not None:
                self.read_message(target.add(), item, inner)
                continue
            booleans = fields.field_key(field) in fields.SHELL_SPLIT
            value = self._read_scalar(field, item, inner, booleans=booleans)
            if value is not None:
                target.append(value)

    def _extend_split(self, target: Any, field: FieldDescriptor, tree: Scalar, path: str) -> None:
        try:
            target.extend(_split_text(field, tree))
        except InvalidValue as invalid:
            self._add_violation(path, str(invalid), tree.mark)

    def _read_scalar(
        self, field: FieldDescriptor, tree: Tree, path: str, *, booleans: bool = False
    ) -> Any:
        """Return the value of a scalar, or None after a violation."""
        try:
            if not isinstance(tree, Scalar):
                raise InvalidValue(
                    f"must be {_describe_expected(field)}, not {_describe_kind(tree)}"
                )
            return read_scalar(field, tree, booleans=booleans)
        except InvalidValue as invalid:
            self._add_violation(path, str(invalid), tree.mark)
            return None

    def _check_required(self, target: Message, tree: Table, path: str) -> None:
        present = {
            e.key for e in tree.entries if not (isinstance(e.value, Scalar) and _is_null(e.value))
        }
        for name in fields.REQUIRED.get(target.DESCRIPTOR.name, ()):
            if name not in present:
                self._add_violation(f"{path}.{name}" if path else name, "is missing", tree.mark)

    def _add_violation(self, path: str, message: str, mark: Mark) -> None:
        self.violations.append(Violation(path, message, mark.line, mark.column))


def read_scalar(field: FieldDescriptor, tree: Scalar, *, booleans: bool = False) -> Any:
    """Return the value of a scalar field. Raises InvalidValue."""
    key = fields.field_key(field)
    if key == fields.PRIORITY and tree.kind == "text":
        return _read_priority(tree)
    if key in fields.DURATIONS:
        return _require_in_range(field, _read_duration(tree))
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return _read_text(field, tree, booleans)
        case FieldDescriptor.TYPE_BOOL:
            return _require_kind(field, tree, "boolean")
        case FieldDescriptor.TYPE_DOUBLE:
            return _read_double(field, tree)
        case _:
            value = _require_in_range(field, _require_kind(field, tree, "integer"))
            if key == "TaskSpec.version" and value != fields.VERSION:
                raise InvalidValue(
                    f"must be {fields.VERSION}: the only schema that this platform reads"
                )
            return value


def _read_text(field: FieldDescriptor, tree: Scalar, booleans: bool) -> str:
    key = fields.field_key(field)
    choices = fields.ENUMS.get(key)
    if key == "TaskSpec.task_type" and (refused := fields.refused_task_type(tree.text)):
        raise InvalidValue(refused)
    if choices and (tree.kind != "text" or tree.text not in choices):
        raise InvalidValue(
            f"must be one of {', '.join(filter(None, choices))}, not {tree.text!r}{_suggestion(tree.text, choices)}"
        )
    if tree.kind == "null" or (tree.kind == "boolean" and not booleans):
        raise InvalidValue(f"must be text, not {_describe_kind(tree)}: put it in quotes")
    try:
        tree.text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("holds half a character (a lone surrogate)") from None
    return tree.text


def _require_kind(field: FieldDescriptor, tree: Scalar, kind: str) -> Any:
    if tree.kind != kind:
        raise InvalidValue(f"must be {_describe_expected(field)}, not {_describe_kind(tree)}")
    return tree.value


def _read_double(field: FieldDescriptor, tree: Scalar) -> float:
    if not isinstance(tree.value, int | float) or tree.kind == "boolean":
        raise InvalidValue(f"must be {_describe_expected(field)}, not {_describe_kind(tree)}")
    value = float(tree.value)
    if not math.isfinite(value):
        raise InvalidValue("must be a finite number")
    return value


def _require_in_range(field: FieldDescriptor, value: int) -> int:
    low, high = _INT64 if field.type == FieldDescriptor.TYPE_INT64 else _INT32
    if not low <= value <= high:
        rule = RULES.get(fields.field_key(field))
        known = rule if isinstance(rule, Number | Level) else Number(low, high)
        raise InvalidValue(known.problem(value))
    return value


def _read_priority(tree: Scalar) -> int:
    name = tree.text.upper()
    if name not in PRIORITIES:
        known = ", ".join(PRIORITIES)
        raise InvalidValue(
            f"no priority is called {tree.text!r}{_suggestion(name, PRIORITIES)}; there are {known}"
        )
    return PRIORITIES[name]


def _read_duration(tree: Scalar) -> int:
    # YAML itself reads 1:30:00 as an integer in base 60, which is the same number of seconds.
    value = tree.value if tree.kind == "integer" else fields.parse_duration(tree.text)
    if tree.kind not in ("integer", "text") or not isinstance(value, int):
        raise InvalidValue("must be a duration: seconds, 90m, 2h30m or D-HH:MM:SS")
    return value


def _is_splittable(field: FieldDescriptor) -> bool:
    return fields.field_key(field) in fields.SHELL_SPLIT | fields.COMMA_SPLIT


def _split_text(field: FieldDescriptor, tree: Scalar) -> list[str]:
    if tree.kind == "boolean":
        raise InvalidValue("must be a list, or one string, not true or false")
    if fields.field_key(field) in fields.COMMA_SPLIT:
        return [word for part in tree.text.split(",") if (word := part.strip())]
    try:
        return shlex.split(tree.text)
    except ValueError as error:
        raise InvalidValue(
            f"cannot be split into words: {str(error).lower()}; a list needs no quotes"
        ) from None


def _or_text_hint(field: FieldDescriptor) -> str:
    return " or one string" if _is_splittable(field) else ""


def _describe_expected(field: FieldDescriptor) -> str:
    if fields.field_key(field) in fields.DURATIONS:
        return "a duration"
    return {
        FieldDescriptor.TYPE_STRING: "text",
        FieldDescriptor.TYPE_BOOL: "true or false",
        FieldDescriptor.TYPE_DOUBLE: "a number",
    }.get(field.type, "a whole number")


def _describe_kind(tree: Tree) -> str:
    match tree:
        case Table():
            return "a mapping"
        case Items():
            return "a list"
        case Scalar(kind="null"):
            return "nothing"
        case Scalar(kind="text"):
            return f"the text {tree.text[:40]!r}"
        case Scalar():
            return f"the {tree.kind} {tree.text}"


def _is_null(tree: Scalar) -> bool:
    return tree.kind == "null"


def unknown_key_message(key: str, message: Descriptor) -> str:
    """Return the message about a key that a message does not have, with keys that the user may have meant."""
    suggestions = difflib.get_close_matches(key, fields.message_fields(message), n=2)
    if suggestions:
        return f"is not a known key; did you mean {' or '.join(suggestions)}?"
    paths_elsewhere = [p for p in fields.paths() if p.rpartition(".")[2] == key]
    if paths_elsewhere:
        return f"is not known here; it belongs at {' or '.join(paths_elsewhere[:2])}"
    return f"is not a known key; known are {', '.join(fields.message_fields(message))}"


def _suggestion(word: str, choices: Any) -> str:
    suggestions = difflib.get_close_matches(word, list(choices), n=1)
    return f" (did you mean {suggestions[0]}?)" if suggestions else ""

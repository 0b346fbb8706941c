"""Reads, changes and writes task specs in YAML, schema version 2. Loads no grpc.

text ─yaml_reader─> tree (positions) ─spec_reader─> TaskSpec ─validation─> violations
                                                            ─writer─> text
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from hai.client.errors import Invalid, UsageError, Violation
from hai.client.taskfile import fields
from hai.client.taskfile.schema import json_schema
from hai.client.taskfile.spec_reader import SpecReader, unknown_key_message
from hai.client.taskfile.tree import (
    MAX_BYTES,
    Entry,
    Malformed,
    Mark,
    Scalar,
    Table,
    Tree,
    from_python,
)
from hai.client.taskfile.validation import violations
from hai.client.taskfile.writer import to_yaml
from hai.client.taskfile.yaml_reader import parse, parse_all
from hai.v1.task_spec_pb2 import TaskSpec

__all__ = [
    "Document",
    "Source",
    "apply_option",
    "json_schema",
    "read_documents",
    "read_spec",
    "require_valid",
    "to_yaml",
]

_OPTION = "the option"

Source = Path | str | Mapping[str, object] | IO[str] | IO[bytes]


@dataclass(frozen=True, slots=True)
class Document:
    """One task of a file: its spec as far as it could be read, the positions of values, and what could not be read."""

    source: str
    spec: TaskSpec
    marks: Mapping[str, Mark]
    unreadable: tuple[Violation, ...] = ()

    def violations(self, changed: TaskSpec | None = None) -> list[Violation]:
        """Return the violations of the spec, or of `changed`, which is the spec after options have changed it."""
        positioned_violations = [
            self._with_position(each) for each in violations(self.spec, self.unreadable)
        ]
        if changed is None:
            return positioned_violations
        by_field_and_message = {(each.field, each.message): each for each in positioned_violations}
        return [
            by_field_and_message.get((each.field, each.message), each)
            for each in violations(changed, self.unreadable)
        ]

    def _with_position(self, violation: Violation) -> Violation:
        """Return the violation with the position of its field, else of the innermost value that contains the field."""
        path = violation.field
        while path and path not in self.marks:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        mark = self.marks.get(path, Mark())
        return (
            violation if violation.line else replace(violation, line=mark.line, column=mark.column)
        )


def read_spec(source: Source, *, rules: bool = True) -> TaskSpec:
    """Return the spec in a file, a text or a mapping. Raises Invalid with every violation at once.

    A Path is a file. A str is yaml text, or the name of a file if it is one line that ends in .yml or .yaml. With
    rules=False a spec that is still being written may break rules; only what cannot be read is refused.
    """
    [document] = _read_documents(source, lambda: [_parse_source(source)])
    if rules or document.unreadable:
        require_valid(document.source, document.violations())
    return document.spec


def read_documents(source: Path | IO[str] | IO[bytes]) -> Sequence[Document]:
    """Return the tasks of a file, separated by `---`. An empty file has one empty task. Raises Invalid."""
    return _read_documents(source, lambda: parse_all(_read_text(source)) or [Table(())])


def require_valid(source: str, found: Sequence[Violation]) -> None:
    """Raise Invalid with every violation, if there are any."""
    if found:
        raise _invalid(source, found)


def _read_documents(source: Source, trees: Callable[[], Sequence[Tree]]) -> Sequence[Document]:
    """Read trees into documents. Raises Invalid if a tree is malformed."""
    name = _source_name(source)
    documents: list[Document] = []
    try:
        for tree in trees():
            reader, spec = SpecReader(), TaskSpec()
            reader.read_message(spec, tree, "")
            documents.append(Document(name, spec, reader.marks, tuple(reader.violations)))
    except Malformed as error:
        place = Violation("", error.message, error.mark.line, error.mark.column)
        raise _invalid(name, [place]) from error
    return documents


def apply_option(spec: TaskSpec, assignment: str) -> None:
    """Change one field of the spec in place: "options.py_venv=base", "resource.node_count=4".

    Text fields take the value as it is written. Other values are read as in a yaml file, and an empty one unsets the
    field. The spec stays unchanged if this raises Invalid.
    """
    path, equals, value = assignment.partition("=")
    if not equals:
        raise UsageError(f"{assignment!r} has no value", hint="write it as key=value")
    changed = TaskSpec()
    changed.CopyFrom(spec)
    _apply_assignment(changed, path.strip(), value)
    spec.CopyFrom(changed)


def _apply_assignment(spec: TaskSpec, path: str, value: str) -> None:
    """Find the field of a dotted path, and set it."""
    target: Message = spec
    *outer, last = path.split(".")
    for index, key in enumerate(outer):
        field = _find_field(target, key, path)
        if fields.is_map(field):
            return _set_field(target, field, ".".join([*outer[index + 1 :], last]), path, value)
        if field.message_type is None or field.is_repeated:
            raise _invalid(_OPTION, [Violation(path, f"{key} has no parts of its own")])
        target = getattr(target, key)
    return _set_field(target, _find_field(target, last, path), "", path, value)


def _set_field(target: Message, field: FieldDescriptor, key: str, path: str, value: str) -> None:
    """Read the value into an empty message of the same type, then merge that into the target."""
    part = type(target)()
    reader = SpecReader()
    tree = _parse_option_value(field, key, path, value)
    reader.read_field(part, field, tree, path)
    if reader.violations:
        raise _invalid(_OPTION, [Violation(v.field, v.message) for v in reader.violations])
    if not key:
        target.ClearField(field.name)
    target.MergeFrom(part)


def _parse_option_value(field: FieldDescriptor, key: str, path: str, value: str) -> Tree:
    """Return the value of an option as the tree that a yaml file would have."""
    if key:
        inner = _parse_option_value(fields.map_value_field(field), "", path, value)
        return Table((Entry(key, inner),))
    words = fields.field_key(field) in fields.SHELL_SPLIT | fields.COMMA_SPLIT
    literal = words and not value.strip().startswith("[")
    if field.type == FieldDescriptor.TYPE_STRING and (not field.is_repeated or literal):
        return Scalar("text", value, value)
    if not value.strip():
        return Scalar("null", "", None)
    try:
        return parse(value)
    except Malformed as error:
        raise _invalid(_OPTION, [Violation(path, error.message)]) from error


def _find_field(target: Message, key: str, path: str) -> FieldDescriptor:
    field = fields.message_fields(fields.descriptor(target)).get(key)
    if field is None:
        raise _invalid(
            _OPTION, [Violation(path, unknown_key_message(key, fields.descriptor(target)))]
        )
    return field


def _source_name(source: Source) -> str:
    if _is_file(source):
        return str(source)
    return str(getattr(source, "name", "")) or "the task spec"


def _is_file(source: Source) -> bool:
    if isinstance(source, str):
        return "\n" not in source and source.endswith((".yml", ".yaml"))
    return isinstance(source, Path)


def _parse_source(source: Source) -> Tree:
    return from_python(source) if isinstance(source, Mapping) else parse(_read_text(source))


def _read_text(source: Path | str | IO[str] | IO[bytes]) -> str:
    if isinstance(source, str | Path):
        return _read_file(Path(source)) if _is_file(source) else str(source)
    return _decode(source.read(MAX_BYTES + 1))


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _decode(file.read(MAX_BYTES + 1))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot read {path}: {reason}", hint="check the file's name") from error


def _decode(data: str | bytes) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed("the file is not UTF-8 text", Mark(line, 1)) from error


def _invalid(name: str, violations: Sequence[Violation]) -> Invalid:
    ordered = sorted(violations, key=lambda v: (v.line, v.column))
    return Invalid(f"{name} is not valid: {'; '.join(map(str, ordered))}", tuple(ordered))

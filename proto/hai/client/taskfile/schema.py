"""Generates the JSON Schema of task files from the contract, for editors and for programs in other languages.

`python -m hai.client.taskfile.schema` writes task.schema.json again. A test checks that the file is current.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from hai.client.taskfile import fields
from hai.client.taskfile.validation import conditions
from hai.client.taskfile.validation.rules import (
    KEYS,
    MAX_ENTRIES,
    RULES,
    UNIQUE,
    Level,
    Number,
    Rule,
    Seconds,
    Text,
)
from hai.task.levels import PRIORITIES
from hai.v1.task_spec_pb2 import ServiceSpec, TaskSpec

FILE = Path(__file__).with_name("task.schema.json")

_PROTO = Path(__file__).parents[2] / "v1" / "task_spec.proto"
_END = r"(?![\s\S])"  # some dialects let `$` match before a last line break
_SUFFIX = rf"[^/.][^/]*(?:{'|'.join(map(re.escape, conditions.SUFFIXES))}){_END}"
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
}


def json_schema() -> dict[str, Any]:
    """Return the schema that is shipped with the package."""
    text = files("hai.client.taskfile").joinpath(FILE.name).read_text("utf-8")
    return cast(dict[str, Any], json.loads(text))


def generate() -> dict[str, Any]:
    """Return the schema as the contract has it now. This needs the .proto file, for its comments."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "HAI Platform task, schema version 2",
        **_message_schema(TaskSpec.DESCRIPTOR),
    }
    schema["$defs"] = {
        fields.message_type_of(field).name: _message_schema(fields.message_type_of(field))
        for field in _submessage_fields(TaskSpec.DESCRIPTOR)
    }
    return schema


def render() -> str:
    """Return the generated schema as the text of the shipped file."""
    return json.dumps(generate(), indent=2, ensure_ascii=False) + "\n"


def _submessage_fields(message: Descriptor) -> list[FieldDescriptor]:
    direct = [f for f in message.fields if f.message_type is not None and not fields.is_map(f)]
    return direct + [
        inner for field in direct for inner in _submessage_fields(fields.message_type_of(field))
    ]


def _message_schema(message: Descriptor) -> dict[str, Any]:
    """Return the schema of a message."""
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {field.name: _field_with_comment(field) for field in message.fields},
    }
    if required := fields.REQUIRED.get(message.name):
        schema["required"] = list(required)
    if message_conditions := _conditions().get(message.name):
        schema["allOf"] = message_conditions
    return schema


def _field_with_comment(field: FieldDescriptor) -> dict[str, Any]:
    schema = _field_schema(field)
    comment = _comments().get(fields.field_key(field), "")
    if not _is_required(field):
        schema = {"anyOf": [schema, {"type": "null"}]}  # null means that the field is not given
    return {"description": comment, **schema}


def _is_required(field: FieldDescriptor) -> bool:
    return field.name in fields.REQUIRED.get(fields.message_name_of(field), ())


def _is_optional(field: FieldDescriptor) -> bool:
    """Return whether a field may be left out. Entries of lists and values of maps may not."""
    inside = field.is_repeated or fields.message_name_of(field).endswith("Entry")
    return not (_is_required(field) or inside)


def _field_schema(field: FieldDescriptor) -> dict[str, Any]:
    """Return the schema of a field: a map, a list or a single value."""
    key = fields.field_key(field)
    if fields.is_map(field):
        schema = {
            "type": "object",
            "additionalProperties": _scalar_schema(
                fields.map_value_field(field), key, booleans=True
            ),
        }
        return (
            {**schema, "propertyNames": {"pattern": _anchored_pattern(KEYS[key])}}
            if key in KEYS
            else schema
        )
    if not field.is_repeated:
        return _single_value(field)
    items = _single_value(field, booleans=key in fields.SHELL_SPLIT)
    array: dict[str, Any] = {"type": "array", "items": items}
    if key in MAX_ENTRIES:
        array["maxItems"] = MAX_ENTRIES[key]
    if key in UNIQUE:
        array["uniqueItems"] = True
    if key in fields.SHELL_SPLIT | fields.COMMA_SPLIT:
        return {"anyOf": [array, {"type": ["string", "number"]}]}
    return array


def _single_value(field: FieldDescriptor, *, booleans: bool = False) -> dict[str, Any]:
    if field.message_type is not None:
        return {"$ref": f"#/$defs/{fields.message_type_of(field).name}"}
    return _scalar_schema(field, fields.field_key(field), booleans=booleans)


def _scalar_schema(field: FieldDescriptor, key: str, *, booleans: bool = False) -> dict[str, Any]:
    """Return the schema of a value by the rule of its field."""
    rule = RULES.get(key)
    if key in fields.ENUMS:
        return {"enum": list(fields.ENUMS[key])}
    if key in fields.DURATIONS:
        return {
            "anyOf": [
                _integer_schema(field, rule),
                {"type": "string", "pattern": fields.DURATION_PATTERN},
            ]
        }
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return _text_schema(field, rule, booleans)
        case FieldDescriptor.TYPE_BOOL:
            return {"type": "boolean"}
        case FieldDescriptor.TYPE_DOUBLE:
            maximum = {"maximum": rule.maximum} if isinstance(rule, Seconds) else {}
            return {"type": "number", "exclusiveMinimum": 0, **maximum}
        case _:
            return _integer_schema(field, rule)


def _text_schema(field: FieldDescriptor, rule: Rule | None, booleans: bool) -> dict[str, Any]:
    """Return the schema of a text field. It also accepts numbers and booleans whose notation is a valid text."""
    if not isinstance(rule, Text):
        return {"type": ["string", "number"]}
    text: dict[str, Any] = {
        "type": "string",
        "pattern": _anchored_pattern(rule, empty=_is_optional(field)),
    }
    if rule.maximum:
        text["maxLength"] = rule.maximum
    others = _number_types(rule) + ([{"type": "boolean"}] if booleans else [])
    return {"anyOf": [text, *others]} if others else text


def _number_types(rule: Text) -> list[dict[str, Any]]:
    """Return the schemas of numbers whose digits are a valid text."""
    if not rule.problem("-1.5"):
        return [{"type": "number"}]
    if not rule.problem("1.5"):
        return [{"type": "number", "minimum": 0}]
    return [] if rule.problem("1") else [{"type": "integer", "minimum": 0}]


def _anchored_pattern(rule: Text, *, empty: bool = False) -> str:
    """Return a pattern that matches the whole text."""
    return f"^(?:{rule.pattern}){'?' if empty else ''}{_END}"


def _integer_schema(field: FieldDescriptor, rule: Rule | None) -> dict[str, Any]:
    """Return the schema of an integer within the limits of its rule and type."""
    if isinstance(rule, Level):
        return {
            "anyOf": [
                {"enum": list(rule.numbers)},
                {"type": "string", "pattern": _priority_pattern()},
            ]
        }
    low, high = _INTEGERS[field.type]
    if isinstance(rule, Number):
        # 0 means that the field is not given
        zero_means_unset = _is_optional(field) and not field.has_presence
        low, high = (
            max(low, min(rule.minimum, 0) if zero_means_unset else rule.minimum),
            min(high, rule.maximum),
        )
    return {"const": low} if low == high else {"type": "integer", "minimum": low, "maximum": high}


def _priority_pattern() -> str:
    """Return a pattern that matches the names of priorities in any case."""
    names = "|".join(
        "".join(f"[{c}{c.lower()}]" if c.isalpha() else c for c in name) for name in PRIORITIES
    )
    return f"^({names})$"


def _conditions() -> dict[str, list[dict[str, Any]]]:
    """Return the conditions of `validation.conditions` that a schema can express, by message."""
    container = {
        "properties": {"task_type": {"const": conditions.CONTAINER}},
        "required": ["task_type"],
    }
    only = {
        "resource": _all_empty("is_spot"),
        "options": _all_empty(*conditions.CONTAINER_OPTIONS),
    }
    suffix = {"type": "string", "pattern": _SUFFIX}
    built_in = {"properties": {"name": {"const": conditions.BUILT_IN_SERVICE}}}
    others = [name for name in ServiceSpec.DESCRIPTOR.fields_by_name if name != "name"]
    return {
        "TaskSpec": [{"if": container, "else": {"properties": only}}],
        "ProgramSpec": [
            {
                "if": _field_is_one_of("entrypoint_executable", True),
                "else": {"properties": {"entrypoint": suffix}},
            }
        ],
        "ServiceSpec": [
            {
                "if": built_in,
                "then": _all_empty(*others),
                "else": {"required": ["type"], "properties": {"type": {"type": "string"}}},
            },
            {"if": _field_is_one_of("type", "local"), "then": _all_empty("port")},
            {
                "if": _field_is_one_of("type", "http", "tcp"),
                "then": {
                    "required": ["port"],
                    "properties": {
                        "port": {"type": "integer", "minimum": 1},
                        "rank": {"enum": [None, [], [0]]},
                    },
                },
            },
            {"if": _field_is_one_of("type", "tcp", "local"), "then": _all_empty("rewrite_uri")},
        ],
    }


def _field_is_one_of(name: str, *values: object) -> dict[str, Any]:
    return {"properties": {name: {"enum": list(values)}}, "required": [name]}


def _all_empty(*names: str) -> dict[str, Any]:
    """Return a schema in which these fields are missing, null, zero or empty."""
    return {"properties": {name: {"enum": [None, 0, False, "", []]} for name in names}}


@cache
def _comments() -> dict[str, str]:
    """Return the comments of the .proto file by Message.field. Descriptors do not carry them."""
    found: dict[str, str] = {}
    message, comment = "", []
    for line in _PROTO.read_text("utf-8").splitlines():
        if match := re.match(r"message (\w+)", line):
            message = match[1]
        if match := re.match(r"\s+// ?(.*)", line):
            comment.append(match[1])
            continue
        if match := re.match(r"\s+[\w<>, ]+ (\w+) = \d+;", line):
            found[f"{message}.{match[1]}"] = " ".join(comment)
        comment = []
    return found


if __name__ == "__main__":
    FILE.write_text(render(), "utf-8")

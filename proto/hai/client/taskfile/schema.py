"""The JSON Schema of the yaml, generated from the contract: for editors, and for programs in other languages.

`python -m hai.client.taskfile.schema` writes task.schema.json anew; a test keeps it current.
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
    MOST,
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
_END = r"(?![\s\S])"  # `$` would leave a last line break to some dialects
_SUFFIX = rf"[^/.][^/]*(?:{'|'.join(map(re.escape, conditions.SUFFIXES))}){_END}"
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
}


def json_schema() -> dict[str, Any]:
    """The schema as it was shipped."""
    text = files("hai.client.taskfile").joinpath(FILE.name).read_text("utf-8")
    return cast(dict[str, Any], json.loads(text))


def generate() -> dict[str, Any]:
    """The schema as the contract has it now; needs the .proto file for its comments."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "HAI Platform task, schema version 2",
        **_message(TaskSpec.DESCRIPTOR),
    }
    schema["$defs"] = {
        fields.inner(field).name: _message(fields.inner(field))
        for field in _message_fields(TaskSpec.DESCRIPTOR)
    }
    return schema


def render() -> str:
    """The text of the shipped file."""
    return json.dumps(generate(), indent=2, ensure_ascii=False) + "\n"


def _message_fields(message: Descriptor) -> list[FieldDescriptor]:
    own = [f for f in message.fields if f.message_type is not None and not fields.is_map(f)]
    return own + [inner for field in own for inner in _message_fields(fields.inner(field))]


def _message(message: Descriptor) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {field.name: _described(field) for field in message.fields},
    }
    if required := fields.REQUIRED.get(message.name):
        schema["required"] = list(required)
    if stated := _conditions().get(message.name):
        schema["allOf"] = stated
    return schema


def _described(field: FieldDescriptor) -> dict[str, Any]:
    schema = _field(field)
    comment = _comments().get(fields.field_key(field), "")
    if not _required(field):
        schema = {"anyOf": [schema, {"type": "null"}]}  # null: not given
    return {"description": comment, **schema}


def _required(field: FieldDescriptor) -> bool:
    return field.name in fields.REQUIRED.get(fields.owner(field), ())


def _optional(field: FieldDescriptor) -> bool:
    """False for entries of lists and values of maps too."""
    inside = field.is_repeated or fields.owner(field).endswith("Entry")
    return not (_required(field) or inside)


def _field(field: FieldDescriptor) -> dict[str, Any]:
    key = fields.field_key(field)
    if fields.is_map(field):
        schema = {
            "type": "object",
            "additionalProperties": _scalar(fields.map_value(field), key, booleans=True),
        }
        return (
            {**schema, "propertyNames": {"pattern": _whole(KEYS[key])}} if key in KEYS else schema
        )
    if not field.is_repeated:
        return _single(field)
    items = _single(field, booleans=key in fields.SHELL_SPLIT)
    array: dict[str, Any] = {"type": "array", "items": items}
    if key in MOST:
        array["maxItems"] = MOST[key]
    if key in UNIQUE:
        array["uniqueItems"] = True
    if key in fields.SHELL_SPLIT | fields.COMMA_SPLIT:
        return {"anyOf": [array, {"type": ["string", "number"]}]}
    return array


def _single(field: FieldDescriptor, *, booleans: bool = False) -> dict[str, Any]:
    if field.message_type is not None:
        return {"$ref": f"#/$defs/{fields.inner(field).name}"}
    return _scalar(field, fields.field_key(field), booleans=booleans)


def _scalar(field: FieldDescriptor, key: str, *, booleans: bool = False) -> dict[str, Any]:
    rule = RULES.get(key)
    if key in fields.ENUMS:
        return {"enum": list(fields.ENUMS[key])}
    if key in fields.DURATIONS:
        return {
            "anyOf": [_integer(field, rule), {"type": "string", "pattern": fields.DURATION_PATTERN}]
        }
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return _text(field, rule, booleans)
        case FieldDescriptor.TYPE_BOOL:
            return {"type": "boolean"}
        case FieldDescriptor.TYPE_DOUBLE:
            most = {"maximum": rule.most} if isinstance(rule, Seconds) else {}
            return {"type": "number", "exclusiveMinimum": 0, **most}
        case _:
            return _integer(field, rule)


def _text(field: FieldDescriptor, rule: Rule | None, booleans: bool) -> dict[str, Any]:
    """A text; also a number, or true and false, where its words are a text of that form."""
    if not isinstance(rule, Text):
        return {"type": ["string", "number"]}
    text: dict[str, Any] = {"type": "string", "pattern": _whole(rule, empty=_optional(field))}
    if rule.most:
        text["maxLength"] = rule.most
    others = _numbers(rule) + ([{"type": "boolean"}] if booleans else [])
    return {"anyOf": [text, *others]} if others else text


def _numbers(rule: Text) -> list[dict[str, Any]]:
    """Numbers whose digits are a text of that form."""
    if not rule.problem("-1.5"):
        return [{"type": "number"}]
    if not rule.problem("1.5"):
        return [{"type": "number", "minimum": 0}]
    return [] if rule.problem("1") else [{"type": "integer", "minimum": 0}]


def _whole(rule: Text, *, empty: bool = False) -> str:
    """The pattern from end to end."""
    return f"^(?:{rule.pattern}){'?' if empty else ''}{_END}"


def _integer(field: FieldDescriptor, rule: Rule | None) -> dict[str, Any]:
    if isinstance(rule, Level):
        return {"anyOf": [{"enum": list(rule.numbers)}, {"type": "string", "pattern": _any_case()}]}
    low, high = _INTEGERS[field.type]
    if isinstance(rule, Number):
        unset = _optional(field) and not field.has_presence  # 0: not given
        low, high = max(low, min(rule.least, 0) if unset else rule.least), min(high, rule.most)
    return {"const": low} if low == high else {"type": "integer", "minimum": low, "maximum": high}


def _any_case() -> str:
    """The names of priorities, in capitals or not."""
    names = "|".join(
        "".join(f"[{c}{c.lower()}]" if c.isalpha() else c for c in name) for name in PRIORITIES
    )
    return f"^({names})$"


def _conditions() -> dict[str, list[dict[str, Any]]]:
    """What hai.client.taskfile.validation.conditions says of fields beside others, by message."""
    container = {
        "properties": {"task_type": {"const": conditions.CONTAINER}},
        "required": ["task_type"],
    }
    only = {
        "resource": _absent("is_spot"),
        "options": _absent(*conditions.CONTAINER_OPTIONS),
    }
    suffix = {"type": "string", "pattern": _SUFFIX}
    built_in = {"properties": {"name": {"const": conditions.BUILT_IN_SERVICE}}}
    others = [name for name in ServiceSpec.DESCRIPTOR.fields_by_name if name != "name"]
    return {
        "TaskSpec": [{"if": container, "else": {"properties": only}}],
        "ProgramSpec": [
            {
                "if": _is("entrypoint_executable", True),
                "else": {"properties": {"entrypoint": suffix}},
            }
        ],
        "ServiceSpec": [
            {
                "if": built_in,
                "then": _absent(*others),
                "else": {"required": ["type"], "properties": {"type": {"type": "string"}}},
            },
            {"if": _is("type", "local"), "then": _absent("port")},
            {
                "if": _is("type", "http", "tcp"),
                "then": {
                    "required": ["port"],
                    "properties": {
                        "port": {"type": "integer", "minimum": 1},
                        "rank": {"enum": [None, [], [0]]},
                    },
                },
            },
            {"if": _is("type", "tcp", "local"), "then": _absent("rewrite_uri")},
        ],
    }


def _is(name: str, *values: object) -> dict[str, Any]:
    return {"properties": {name: {"enum": list(values)}}, "required": [name]}


def _absent(*names: str) -> dict[str, Any]:
    """Fields that are not given, or as good as not given."""
    return {"properties": {name: {"enum": [None, 0, False, "", []]} for name in names}}


@cache
def _comments() -> dict[str, str]:
    """Comments of the .proto file by Message.field: descriptors do not carry them."""
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

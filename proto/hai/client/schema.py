"""The JSON Schema of the yaml, generated from the contract: for editors, and for programs in other languages.

`python -m hai.client.schema` writes task.schema.json anew; a test keeps it current.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from hai.client import fields
from hai.task.levels import PRIORITIES
from hai.v1.task_spec_pb2 import TaskSpec

FILE = Path(__file__).with_name("task.schema.json")

_PROTO = Path(__file__).parent.parent / "v1" / "task_spec.proto"
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
}


def json_schema() -> dict[str, Any]:
    """The schema as it was shipped."""
    text = files("hai.client").joinpath(FILE.name).read_text("utf-8")
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
    return schema


def _described(field: FieldDescriptor) -> dict[str, Any]:
    schema = _field(field)
    comment = _comments().get(fields.field_key(field), "")
    if field.name not in fields.REQUIRED.get(fields.owner(field), ()):
        schema = {"anyOf": [schema, {"type": "null"}]}  # null: not given
    return {"description": comment, **schema}


def _field(field: FieldDescriptor) -> dict[str, Any]:
    if fields.is_map(field):
        value = _scalar(fields.map_value(field), booleans=True)
        return {"type": "object", "additionalProperties": value}
    if not field.is_repeated:
        return _single(field)
    key = fields.field_key(field)
    items = _single(field, booleans=key in fields.SHELL_WORDS)
    array = {"type": "array", "items": items}
    if key in fields.SHELL_WORDS | fields.COMMA_WORDS:
        return {"anyOf": [array, {"type": ["string", "number"]}]}
    return array


def _single(field: FieldDescriptor, *, booleans: bool = False) -> dict[str, Any]:
    if field.message_type is not None:
        return {"$ref": f"#/$defs/{fields.inner(field).name}"}
    return _scalar(field, booleans=booleans)


def _scalar(field: FieldDescriptor, *, booleans: bool = False) -> dict[str, Any]:
    key = fields.field_key(field)
    if key == "TaskSpec.version":
        return {"const": fields.VERSION}
    if key in fields.ENUMS:
        return {"enum": list(fields.ENUMS[key])}
    if key == fields.PRIORITY:
        return {"anyOf": [_integer(field), {"type": "string", "pattern": _any_case()}]}
    if key in fields.DURATIONS:
        return {"anyOf": [_integer(field), {"type": "string", "pattern": fields.DURATION_PATTERN}]}
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return {"type": ["string", "number", "boolean"] if booleans else ["string", "number"]}
        case FieldDescriptor.TYPE_BOOL:
            return {"type": "boolean"}
        case FieldDescriptor.TYPE_DOUBLE:
            return {"type": "number"}
        case _:
            return _integer(field)


def _integer(field: FieldDescriptor) -> dict[str, Any]:
    low, high = _INTEGERS[field.type]
    return {"type": "integer", "minimum": low, "maximum": high}


def _any_case() -> str:
    """The names of priorities, in capitals or not."""
    names = "|".join(
        "".join(f"[{c}{c.lower()}]" if c.isalpha() else c for c in name) for name in PRIORITIES
    )
    return f"^({names})$"


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

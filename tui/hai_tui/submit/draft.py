"""The yaml of a task and, while it is valid, its spec. The yaml is authoritative; a form field is a path into it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hai.client.errors import HaiError, Invalid, Violation
from hai.client.taskfile.spec import apply_option, read_spec, to_yaml
from hai.client.taskfile.validation import violations as rule_violations
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_tui.formatting.values import priority_name
from hai_tui.submit import list_fields

FIELDS: tuple[str, ...] = (
    "name",
    "spec.entrypoint",
    "spec.parameters",
    list_fields.VARIABLES,
    "spec.workspace",
    "resource.group",
    "resource.node_count",
    "resource.gpu",
    "resource.cpu",
    "resource.memory",
    "priority",
    "resource.image",
    "options.py_venv",
    "options.mount_code",
    list_fields.SERVICES,
    "options.tags",
    list_fields.AFTER,
    "options.time_limit",
    "options.max_retries",
    "options.whole_life_state",
    "options.watchdog_time",
    "task_type",
    "resource.is_spot",
)
"""Paths that have a line in the form, or lines; everything else is written as yaml."""

Value = str | Sequence[str]
"""What stands in a line, or in the lines of a list."""

_YES = {"yes": "true", "no": "false"}
_PARTS = re.compile(r"(?:services|options\.after)\[\d+\]|spec\.environments\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Draft:
    """A text, its spec when it can be read, and what is wrong with it."""

    text: str
    spec: TaskSpec | None
    violations: tuple[Violation, ...] = ()

    def broken(self) -> tuple[Violation, ...]:
        """What could not be read, else the rules that the spec breaks: all that takes no server to see."""
        if self.violations or self.spec is None:
            return self.violations
        return tuple(rule_violations(self.spec))


def read(text: str) -> Draft:
    """What a text means."""
    try:
        return Draft(text, read_spec(_lines(text), rules=False))
    except Invalid as error:
        sentence = error.violations or (Violation("", error.message),)
        return Draft(text, None, sentence)
    except HaiError as error:
        return Draft(text, None, (Violation("", error.message),))


def write(spec: TaskSpec) -> Draft:
    """The text of a spec."""
    return Draft(to_yaml(spec), spec)


def change(draft: Draft, path: str, value: Value) -> Draft:
    """Another value of one field. A value that cannot be read is a violation of that field, and leaves the text as
    it is.

    Violations of other fields stay: their lines still show what could not be read.
    """
    if draft.spec is None:
        return draft
    spec = TaskSpec()
    spec.CopyFrom(draft.spec)
    others = tuple(v for v in draft.violations if not v.field.startswith(path))
    if wrong := _set(spec, path, value):
        return Draft(draft.text, draft.spec, (*others, *wrong))
    return replace(write(spec), violations=others)


def _set(spec: TaskSpec, path: str, value: Value) -> tuple[Violation, ...]:
    """Change the spec; what is wrong with the value."""
    if not isinstance(value, str):
        return list_fields.put(spec, path, value)
    if path == "resource.is_spot":
        value = _YES.get(value.strip().lower(), value)
    try:
        apply_option(spec, f"{path}={value}")
    except Invalid as error:
        sentence = "; ".join(v.message for v in error.violations) or error.message
        return (Violation(path, sentence),)
    except HaiError as error:
        return (Violation(path, error.message),)
    return ()


def values(spec: TaskSpec) -> dict[str, Value]:
    """What stands in each line of the form; nothing for what was not asked for."""
    import yaml

    document = yaml.safe_load(to_yaml(spec))
    found: dict[str, Value] = {
        path: list_fields.rows(spec, path)
        if path in list_fields.LISTS
        else _field_text(_at(document, path), path)
        for path in FIELDS
    }
    return {**found, "priority": priority_name(spec.priority) if found["priority"] else ""}


def first() -> TaskSpec:
    """A beginning for somebody who has never submitted anything."""
    return TaskSpec(
        version=2,
        name="train",
        spec=ProgramSpec(workspace="", entrypoint="train.py"),
        resource=ResourceSpec(group="default", node_count=1),
    )


def again(spec: TaskSpec) -> TaskSpec:
    """The same task with a name of its own: train-2 behind train."""
    made = TaskSpec()
    made.CopyFrom(spec)
    match = re.fullmatch(r"(.*?)-(\d+)", made.name)
    made.name = f"{match[1]}-{int(match[2]) + 1}" if match else f"{made.name}-2"
    return made


def field_of(violation: Violation) -> str:
    """The line of the form that a violation belongs to; empty: none."""
    path = violation.field.removeprefix("task.")
    if part := _PARTS.match(path):
        return part[0]
    return next((f for f in FIELDS if path == f or path.startswith((f"{f}[", f"{f}."))), "")


def _lines(text: str) -> str:
    """Text, never taken for the name of a file."""
    return text if "\n" in text else f"{text}\n"


def _at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def _field_text(value: Any, path: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [str(item) for item in value]
        return shlex.join(parts) if path == "spec.parameters" else ",".join(parts)
    return str(value)

"""The draft of a task: its yaml and, while the yaml is valid, its spec. A form field is a path into the yaml."""

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
"""Paths that the form shows; the user writes all others as yaml."""

Value = str | Sequence[str]
"""The text of a line, or the texts of the lines of a list."""

_BOOLEANS = {"yes": "true", "no": "false"}
_LIST_PART = re.compile(r"(?:services|options\.after)\[\d+\]|spec\.environments\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Draft:
    """A yaml text, its spec if the text can be read, and its violations."""

    text: str
    spec: TaskSpec | None
    violations: tuple[Violation, ...] = ()

    def find_violations(self) -> tuple[Violation, ...]:
        """Return why the text cannot be read, or else the rules that the spec breaks. Needs no server."""
        if self.violations or self.spec is None:
            return self.violations
        return tuple(rule_violations(self.spec))


def read_draft(text: str) -> Draft:
    """Return the draft of a yaml text; violations if it cannot be read."""
    try:
        # `read_spec` takes a text without a line break for the name of a file.
        return Draft(text, read_spec(text if "\n" in text else f"{text}\n", rules=False))
    except Invalid as error:
        return Draft(text, None, error.violations or (Violation("", error.message),))
    except HaiError as error:
        return Draft(text, None, (Violation("", error.message),))


def draft_of(spec: TaskSpec) -> Draft:
    """Return the draft whose yaml describes the spec."""
    return Draft(to_yaml(spec), spec)


def set_field(draft: Draft, path: str, value: Value) -> Draft:
    """Return the draft with another value of one field.

    A value that cannot be read is a violation of the field and leaves the text unchanged. Violations of other fields
    stay, because their lines still show the values that could not be read.
    """
    if draft.spec is None:
        return draft
    spec = TaskSpec()
    spec.CopyFrom(draft.spec)
    others = tuple(v for v in draft.violations if not v.field.startswith(path))
    if violations := _set(spec, path, value):
        return Draft(draft.text, draft.spec, (*others, *violations))
    return replace(draft_of(spec), violations=others)


def _set(spec: TaskSpec, path: str, value: Value) -> tuple[Violation, ...]:
    """Change the spec in place; return what is wrong with the value."""
    if not isinstance(value, str):
        return list_fields.set_lines(spec, path, value)
    if path == "resource.is_spot":
        value = _BOOLEANS.get(value.strip().lower(), value)
    try:
        apply_option(spec, f"{path}={value}")
    except Invalid as error:
        sentence = "; ".join(v.message for v in error.violations) or error.message
        return (Violation(path, sentence),)
    except HaiError as error:
        return (Violation(path, error.message),)
    return ()


def field_values(spec: TaskSpec) -> dict[str, Value]:
    """Return the value of each line of the form; empty for a field that the spec does not set."""
    import yaml

    document = yaml.safe_load(to_yaml(spec))
    values: dict[str, Value] = {
        path: list_fields.get_lines(spec, path)
        if path in list_fields.LISTS
        else _field_text(_value_at(document, path), path)
        for path in FIELDS
    }
    return {**values, "priority": priority_name(spec.priority) if values["priority"] else ""}


def initial_spec() -> TaskSpec:
    """Return the spec that the form shows to a user who has never submitted a task."""
    return TaskSpec(
        version=2,
        name="train",
        spec=ProgramSpec(workspace="", entrypoint="train.py"),
        resource=ResourceSpec(group="default", node_count=1),
    )


def resubmission_of(spec: TaskSpec) -> TaskSpec:
    """Return a copy of the spec with a new name: train-2 after train."""
    copy = TaskSpec()
    copy.CopyFrom(spec)
    match = re.fullmatch(r"(.*?)-(\d+)", copy.name)
    copy.name = f"{match[1]}-{int(match[2]) + 1}" if match else f"{copy.name}-2"
    return copy


def field_of(violation: Violation) -> str:
    """Return the line of the form to which a violation belongs; empty if there is none."""
    path = violation.field.removeprefix("task.")
    if part := _LIST_PART.match(path):
        return part[0]
    return next((f for f in FIELDS if path == f or path.startswith((f"{f}[", f"{f}."))), "")


def _value_at(document: Any, path: str) -> Any:
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

"""The text of a task and, while it can be read, its spec. The yaml is the truth; a form's field is a path into it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hai.client.errors import HaiError, Invalid, Violation
from hai.client.spec import apply_option, read_spec, to_yaml
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_tui.cli.human import priority_name

FIELDS: tuple[str, ...] = (
    "name",
    "spec.entrypoint",
    "spec.parameters",
    "spec.workspace",
    "resource.group",
    "resource.node_count",
    "resource.gpu",
    "priority",
    "resource.image",
    "options.py_venv",
    "options.tags",
    "options.time_limit",
    "options.max_retries",
    "options.whole_life_state",
    "options.watchdog_time",
    "task_type",
)
"""Paths that have a line in the form; everything else is written as yaml."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A text, its spec when it can be read, and what is wrong with it."""

    text: str
    spec: TaskSpec | None
    violations: tuple[Violation, ...] = ()


def read(text: str) -> Draft:
    """What a text means."""
    try:
        return Draft(text, read_spec(_lines(text)))
    except Invalid as error:
        told = error.violations or (Violation("", error.message),)
        return Draft(text, None, told)
    except HaiError as error:
        return Draft(text, None, (Violation("", error.message),))


def write(spec: TaskSpec) -> Draft:
    """The text of a spec."""
    return Draft(to_yaml(spec), spec)


def change(draft: Draft, path: str, value: str) -> Draft:
    """Another value of one field. What can not be read is a violation of that field; the text stays as it is."""
    if draft.spec is None:
        return draft
    spec = TaskSpec()
    spec.CopyFrom(draft.spec)
    try:
        apply_option(spec, f"{path}={value}")
    except Invalid as error:
        told = "; ".join(v.message for v in error.violations) or error.message
        return Draft(draft.text, draft.spec, (Violation(path, told),))
    except HaiError as error:
        return Draft(draft.text, draft.spec, (Violation(path, error.message),))
    return write(spec)


def values(spec: TaskSpec) -> dict[str, str]:
    """What stands in each line of the form; nothing for what was not asked for."""
    import yaml

    whole = yaml.safe_load(to_yaml(spec))
    found = {path: _shown(_at(whole, path), path) for path in FIELDS}
    return {**found, "priority": priority_name(spec.priority) if found["priority"] else ""}


def first(user: str) -> TaskSpec:
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
    return next((f for f in FIELDS if path == f or path.startswith((f"{f}[", f"{f}."))), "")


def _lines(text: str) -> str:
    """Text, never taken for the name of a file."""
    return text if "\n" in text else f"{text}\n"


def _at(whole: Any, path: str) -> Any:
    for key in path.split("."):
        whole = whole.get(key) if isinstance(whole, Mapping) else None
    return whole


def _shown(value: Any, path: str) -> str:
    if value is None:
        return ""
    if isinstance(value, Sequence) and not isinstance(value, str):
        words = [str(word) for word in value]
        return shlex.join(words) if path == "spec.parameters" else ",".join(words)
    return str(value)

"""Rules about single fields of a task spec: a table, and the check of a message against it.

Python's `re` and the regular expressions of JSON Schema (ECMA-262) must read the patterns alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from hai.client.errors import Violation
from hai.client.taskfile import fields
from hai.client.taskfile.validation import limits
from hai.client.taskfile.validation.violations import Violations, quote_shortened, suggestion_text
from hai.redaction import redact
from hai.task import env
from hai.task.levels import EXP_PRIORITY

# BLANK: blanks for Python or for ECMA-262. CONTROL: also characters that change the direction of text on a screen.
BLANK = r"\s\x1c-\x1f\x85\ufeff"
CONTROL = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
PLATFORM_VARIABLES = (env.CONTROL_FILE, env.AGENT_SOCKET, env.RANK_KEY)

_NO_NUL = r"[^\x00]*"
_FOLDER_PART = rf"(?!\.{{1,2}}(?:/|$))[^/{BLANK}\x00]+"
_FOLDER = rf"(?:/+{_FOLDER_PART}(?:/{_FOLDER_PART})*)?/*"
_REFERENCE = rf"haiworkspace://{NAME}(?:@(?:[0-9]{{1,15}}|{NAME}))?{_FOLDER}"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = (
    rf"(?:localhost|{_HOST}(?:\.{_HOST})+|{_HOST}(?:\.{_HOST})*(?=:[1-9]))(?::[1-9][0-9]{{0,4}})?"
)
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"
_NO_REGISTRY = r"(?!localhost/)(?![^/]*[.:][^/]*/)"
_IMAGE = rf"(?=[^@]*/)(?:{_REGISTRY}/|{_NO_REGISTRY}){_PART}(?:/{_PART})*(?::{_IMAGE_TAG})?(?:@(?:{_DIGEST}))?"
_NAME_FORM = "at most 63 letters, digits, `.`, `_`, `-`, beginning with a letter or digit"
_LABEL_FORM = "at most 63 of a-z, 0-9 and -, no - at an end"


@dataclass(frozen=True, slots=True)
class Text:
    """A rule for texts: a maximum length, and a form that a pattern and a sentence describe.

    An empty text means that the field is not given. Messages never show a value that may be a secret.
    """

    pattern: str = _NO_NUL
    form: str = "without NUL bytes, which no program can receive"
    maximum: int = 0  # 0 means no limit
    secret: bool = False

    def problem(self, value: str) -> str:
        """Return what is wrong with a value, or an empty string."""
        if self.maximum and len(value) > self.maximum:
            return f"has {len(value)} characters; at most {self.maximum} are allowed"
        if not _compiled(self.pattern).fullmatch(value):
            return (
                f"{'' if self.secret else quote_shortened(redact(value)) + ' '}must be {self.form}"
            )
        return ""


@dataclass(frozen=True, slots=True)
class Number:
    """A rule for whole numbers within limits."""

    minimum: int
    maximum: int

    def problem(self, value: int) -> str:
        """Return what is wrong with a value, or an empty string."""
        if self.minimum <= value <= self.maximum:
            return ""
        if self.minimum == self.maximum:
            return f"must be {self.minimum}, not {value}"
        return f"must be from {self.minimum} to {self.maximum}, not {value}"


@dataclass(frozen=True, slots=True)
class Seconds:
    """A rule for a positive number of seconds."""

    maximum: float

    def problem(self, value: float) -> str:
        """Return what is wrong with a value, or an empty string."""
        if math.isfinite(value) and 0 < value <= self.maximum:
            return ""
        return f"must be more than 0 and at most {self.maximum:g} seconds, not {value:g}"


@dataclass(frozen=True, slots=True)
class Level:
    """A rule for the number of a priority."""

    numbers: tuple[int, ...] = tuple(int(level) for level in EXP_PRIORITY)

    def problem(self, value: int) -> str:
        """Return what is wrong with a value, or an empty string."""
        known = ", ".join(f"{level.name} {int(level)}" for level in EXP_PRIORITY)
        return "" if value in self.numbers else f"{value} is no priority; there are {known}"


@dataclass(frozen=True, slots=True)
class Choice:
    """A rule for texts that are one of a few words."""

    choices: tuple[str, ...]

    def problem(self, value: str) -> str:
        """Return what is wrong with a value, or an empty string."""
        if value in self.choices:
            return ""
        known = ", ".join(word for word in self.choices if word)
        return (
            f"{quote_shortened(value)} must be one of {known}{suggestion_text(value, self.choices)}"
        )


@dataclass(frozen=True, slots=True)
class TaskType(Choice):
    """A rule for task types. For a type that only HAI has, the message says what to do instead."""

    def problem(self, value: str) -> str:
        """Return what is wrong with a value, or an empty string."""
        return fields.refused_task_type(value) or Choice.problem(self, value)


Rule = Text | Number | Seconds | Level | Choice

_ENTRYPOINT = Text(
    rf"(?!-)(?=[\s\S]*[^{BLANK}])[^\x00]*",
    "a file that does not begin with a hyphen (write ./ before it), without NUL bytes",
    limits.COMMAND_CHARS,
)
_LABEL_TEXT = Text(LABEL, _LABEL_FORM)
_VARIABLE = Text(
    rf"(?!(?:{'|'.join(PLATFORM_VARIABLES)})$)[A-Za-z_][A-Za-z0-9_]*",
    "a variable's name: letters, digits and _, no digit first, and none that is set by the platform itself "
    f"({', '.join(PLATFORM_VARIABLES)})",
)
_VALUE = Text(secret=True)
_DURATION = Number(0, limits.SECONDS)
_GPUS, _CPUS = Number(0, limits.GPUS), Number(0, limits.CPUS)
_MEMORY = Number(0, limits.MEMORY_GB)

RULES: Mapping[str, Rule] = {
    **{key: Choice(choices) for key, choices in fields.ENUMS.items()},
    "TaskSpec.version": Number(fields.VERSION, fields.VERSION),
    "TaskSpec.name": Text(
        rf"(?=[^()]*[^{BLANK}()])[^(){CONTROL}]*",
        "a name without parentheses, control characters and line breaks",
        limits.NAME_CHARS,
    ),
    "TaskSpec.task_type": TaskType(fields.ENUMS["TaskSpec.task_type"]),
    "TaskSpec.priority": Level(),
    "ProgramSpec.workspace": Text(
        rf"{_REFERENCE}|(?!haiworkspace://)[^{BLANK}\x00]*",
        "a directory whose path has no blanks and no NUL bytes, or haiworkspace://NAME, …@REVISION or "
        "…@REVISION/FOLDER, with a number or a tag",
        limits.WORKSPACE_CHARS,
    ),
    "ProgramSpec.entrypoint": _ENTRYPOINT,
    "ProgramSpec.parameters": _VALUE,
    "ProgramSpec.environments": _VALUE,
    "ProgramSpec.git_remote_repo": Text(
        rf"(?!-)(?![^\x00]*::)[^{BLANK}\x00]*",
        "the address of a git repository, without blanks",
        limits.URL_CHARS,
    ),
    "ProgramSpec.git_target_revision": Text(
        rf"(?!-)[^{BLANK}\x00]*",
        "a branch, tag or commit, without blanks",
        limits.REVISION_CHARS,
    ),
    "ResourceSpec.image": Text(
        rf"{NAME}|{_IMAGE}",
        f"an image name ({_NAME_FORM}), or a registry path such as registry/project/name:tag: in lower case, "
        "without https://, user and password",
        limits.IMAGE_CHARS,
    ),
    "ResourceSpec.group": Text(
        rf"{NAME}(?:#{NAME})?", f"a group, or group#zone; both are {_NAME_FORM}"
    ),
    "ResourceSpec.node_count": Number(1, limits.NODES),
    "ResourceSpec.gpu": _GPUS,
    "ResourceSpec.cpu": _CPUS,
    "ResourceSpec.memory": _MEMORY,
    "ServiceSpec.name": _LABEL_TEXT,
    "ServiceSpec.port": Number(1, limits.PORT),
    "ServiceSpec.rank": Number(0, limits.NODES - 1),
    "ServiceSpec.startup_script": Text(
        r"[^;\n\x00]*", "one command, without ; and line breaks", limits.COMMAND_CHARS
    ),
    "OptionsSpec.mount_code": Number(0, limits.INT32),
    "OptionsSpec.py_venv": Text(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?:\[[a-z0-9_-]{1,32}\])?",
        "an environment's name, or name[owner]",
    ),
    "OptionsSpec.tags": Text(
        rf"(?!_)[^{BLANK},{CONTROL}]+",
        "a word without blanks, commas and control characters, and without an underscore first: those tags are "
        "the platform's",
        limits.TAG_CHARS,
    ),
    "OptionsSpec.watchdog_time": _DURATION,
    "OptionsSpec.sidecar": _LABEL_TEXT,
    "OptionsSpec.timeout": _DURATION,
    "OptionsSpec.time_limit": _DURATION,
    "OptionsSpec.max_retries": Number(0, limits.RETRIES),
    "OptionsSpec.ack_within": Seconds(limits.ACK_SECONDS),
    "OptionsSpec.save_within": Seconds(limits.SAVE_SECONDS),
    "OptionsSpec.idle_timeout": _DURATION,
    "OptionsSpec.lifetime": _DURATION,
    "AfterSpec.task": Number(1, limits.INT64),
    "NodeResourceSpec.cpu": _CPUS,
    "NodeResourceSpec.memory": _MEMORY,
    "ProfileSpec.time": _DURATION,
    "ProfileSpec.recorder": Text(
        rf"[^{CONTROL}]*", "without control characters and line breaks", limits.IMAGE_CHARS
    ),
    "ProfileSpec.interval": Number(1, limits.SECONDS),
    "ProfileSpec.warmup": _DURATION,
    "RoleSpec.name": _LABEL_TEXT,
    "RoleSpec.count": Number(1, limits.NODES),
    "RoleSpec.entrypoint": _ENTRYPOINT,
    "RoleSpec.parameters": _VALUE,
    "RoleSpec.environments": _VALUE,
    "RoleSpec.gpu": _GPUS,
    "RoleSpec.cpu": _CPUS,
    "RoleSpec.memory": _MEMORY,
    "PolicySpec.min_available": Number(0, limits.NODES),
}
"""Rules by Message.field, for the field, each entry of the list, or each value of the map."""

KEYS: Mapping[str, Text] = {
    "ProgramSpec.environments": _VARIABLE,
    "RoleSpec.environments": _VARIABLE,
}
"""Rules for the keys of maps."""

MAX_ENTRIES: Mapping[str, int] = {
    "TaskSpec.services": limits.SERVICES,
    "TaskSpec.roles": limits.ROLES,
    "OptionsSpec.tags": limits.TAGS,
    "OptionsSpec.after": limits.PREDECESSORS,
}
"""The maximum number of entries of lists."""

UNIQUE = {
    "ServiceSpec.rank": "names a rank twice",
    "OptionsSpec.assigned_nodes": "names a node twice",
}
"""Lists whose entries must differ, with the message if they do not."""

_MISSING_HINTS = {
    "ProgramSpec.entrypoint": ": a .py file, a .sh file, or with entrypoint_executable any program"
}

_Check = Callable[[str, Any, Violations], None]


def check_fields(message: Message, path: str, found: Violations) -> None:
    """Add the violations of single fields of this message and of all messages in it."""
    checks, required = _checks_of(fields.descriptor(message))
    given = {field.name: value for field, value in message.ListFields()}
    for name, absent in required.items():
        if name not in given:
            absent(f"{path}{name}", getattr(message, name), found)
    for name, value in given.items():
        if check := checks.get(name):
            check(f"{path}{name}", value, found)


def tag_violations(path: str, tags: Sequence[str]) -> Sequence[Violation]:
    """Return the violations of tags that a person sets."""
    found = Violations()
    _list_check("OptionsSpec.tags")(path, tags, found)
    return list(found)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def _checks_of(message: Descriptor) -> tuple[Mapping[str, _Check], Mapping[str, _Check]]:
    """Return the checks of present fields, and the checks of required fields that are missing."""
    checks: dict[str, _Check] = {}
    required: dict[str, _Check] = {}
    for field in message.fields:
        key = fields.field_key(field)
        if fields.is_map(field):
            checks[field.name] = _map_check(key)
        elif field.message_type is not None:
            checks[field.name] = _message_list_check(key) if field.is_repeated else _check_message
        elif field.is_repeated:
            checks[field.name] = _list_check(key)
        elif key in RULES:
            checks[field.name] = _scalar_check(key)
        if field.name in fields.REQUIRED.get(message.name, ()):
            required[field.name] = (
                _check_message if field.message_type is not None else _missing_check(key)
            )
    return checks, required


def _scalar_check(key: str) -> _Check:
    """Return the check of a scalar field. Blank text in a required field counts as missing."""
    rule, needed = RULES[key], _is_required(key)

    def check(path: str, value: Any, found: Violations) -> None:
        if needed and isinstance(value, str) and not _compiled(f"[^{BLANK}]").search(value):
            _missing_check(key)(path, value, found)
        elif problem := rule.problem(value):
            found.add(path, problem)

    return check


def _is_required(key: str) -> bool:
    message, _, name = key.partition(".")
    return name in fields.REQUIRED.get(message, ())


def _missing_check(key: str) -> _Check:
    """Return the check that reports a missing required field."""
    rule = RULES[key]

    def check(path: str, value: Any, found: Violations) -> None:
        number = isinstance(rule, Number)
        found.add(
            path, rule.problem(value) if number else f"is required{_MISSING_HINTS.get(key, '')}"
        )

    return check


def _check_message(path: str, value: Any, found: Violations) -> None:
    check_fields(value, f"{path}.", found)


def _message_list_check(key: str) -> _Check:
    def check(path: str, values: Any, found: Violations) -> None:
        if not _has_too_many_entries(key, path, values, found):
            for index, value in enumerate(values):
                check_fields(value, f"{path}[{index}].", found)

    return check


def _list_check(key: str) -> _Check:
    """Return the check of a list: its length, its duplicates, and each entry."""
    rule = RULES.get(key)

    def check(path: str, values: Any, found: Violations) -> None:
        if _has_too_many_entries(key, path, values, found):
            return
        if key in UNIQUE and len(set(values)) != len(values):
            found.add(path, UNIQUE[key])
        if rule is None:
            return
        for index, value in enumerate(values):
            if problem := rule.problem(value):
                found.add(f"{path}[{index}]", problem)

    return check


def _map_check(key: str) -> _Check:
    """Return the check of a map: each key and each value."""
    rule, names = RULES[key], KEYS.get(key)

    def check(path: str, values: Any, found: Violations) -> None:
        for name, value in values.items():
            problem = (names.problem(name) if names else "") or rule.problem(value)
            if problem:
                found.add(f"{path}[{name[:64]}]", problem)

    return check


def _has_too_many_entries(key: str, path: str, values: Sequence[object], found: Violations) -> bool:
    maximum = MAX_ENTRIES.get(key)
    if maximum is None or len(values) <= maximum:
        return False
    found.add(path, f"has {len(values)} entries; at most {maximum} are allowed")
    return True

"""Parses the filter language of ListTasks and WatchTasks.

`hai.client.tasks.filters` defines the syntax. Only terms of state, user, name and tag may be negated.
    state:running,queued   outcome:failed   user:me   name:bert*   tag:sweep   group:default   type:jupyter
    priority>=30   starred:true   id:1,2   age<2d (younger than two days)   created>2026-01-01 (UTC)
    after:3 (waits for task 3 to end)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from hai.client.taskfile.validation.violations import suggestion_text
from hai.client.tasks.filters import STATE_GROUPS, Term, parse_term, split_words
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Outcome, TaskState
from hai_backend.store.base import ORDERS, TaskFilter

_STATES: Mapping[str, frozenset[TaskState]] = {
    group: frozenset(TaskState[name] for name in names) for group, names in STATE_GROUPS.items()
}
_SETS = {"state": "states", "user": "users", "name": "names", "tag": "tags"}
_ONLY_SETS = {"outcome": "outcomes", "group": "groups", "type": "task_types", "id": "ids",
              "after": "awaiting"}  # fmt: skip
_RANGES = ("priority", "created", "age", "starred")
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
KEYS = (*_SETS, *_ONLY_SETS, *_RANGES)


def parse(text: str, caller: str, now: float) -> TaskFilter:
    """Return the filter that a text describes. Raises Invalid with every wrong term."""
    violations = FieldViolations()
    if len(text) > limits.FILTER_CHARS:
        violations.add(
            "filter", f"has {len(text)} characters; at most {limits.FILTER_CHARS} are allowed"
        )
        violations.raise_if_any()
    fields: dict[str, Any] = {}
    for term in _parse_terms(text, violations):
        for name, value in _fields_of(term, caller, now, violations):
            _merge(fields, term, name, value, violations)
    violations.raise_if_any()
    return TaskFilter(**fields)


def parse_order(text: str) -> tuple[str, bool]:
    """Return the column and whether the order is descending, from a text such as `name desc`. Raises Invalid."""
    column, _, direction = text.strip().partition(" ")
    if not column:
        return "id", True
    violations = FieldViolations()
    if column not in ORDERS:
        violations.add(
            "order_by",
            f"{column[:40]!r} must be one of {', '.join(ORDERS)}{suggestion_text(column, ORDERS)}",
        )
    if direction.strip().lower() not in ("", "asc", "desc"):
        violations.add("order_by", f"{direction.strip()[:40]!r} must be desc or nothing")
    violations.raise_if_any()
    return column, direction.strip().lower() == "desc"


def _parse_terms(text: str, violations: FieldViolations) -> Iterator[Term]:
    for word in split_words(text):
        term = parse_term(word)
        if term is None or word.count('"') % 2:
            violations.add(
                "filter", f"{word[:60]!r} is not key:value; known keys are {', '.join(KEYS)}"
            )
        elif term.key not in KEYS:
            hint = suggestion_text(term.key, KEYS)
            violations.add(
                "filter",
                f"{term.text!r}: there is no key {term.key!r}{hint}; there are {', '.join(KEYS)}",
            )
        elif term.values:
            yield term
        else:
            violations.add("filter", f"{term.text!r} has no value")


def _fields_of(
    term: Term, caller: str, now: float, violations: FieldViolations
) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the fields that a term sets in TaskFilter."""
    name = _SETS.get(term.key) or _ONLY_SETS.get(term.key)
    if term.negated and term.key not in _SETS:
        violations.add("filter", f"{term.text!r}: only {', '.join(_SETS)} can be negated")
    elif name is None:
        yield from _range_fields(term, now, violations)
    elif term.operator not in (":", "="):
        violations.add(
            "filter", f"{term.text!r}: {term.key} cannot be compared; write {term.key}:value"
        )
    else:
        values = _read_values(term, caller, violations)
        if values:
            collection = tuple(values) if term.key == "name" else frozenset(values)
            yield (f"not_{name}" if term.negated else name), collection


def _read_values(term: Term, caller: str, violations: FieldViolations) -> list[Any]:
    match term.key:
        case "state":
            return [s for v in term.values for s in _read_state(term, v, violations)]
        case "outcome":
            return [o for v in term.values for o in _read_member(term, v, Outcome, violations)]
        case "type":
            return [t for v in term.values for t in _read_member(term, v, TaskType, violations)]
        case "id" | "after":
            return [
                i for v in term.values if (i := _read_number(term.text, v, violations)) is not None
            ]
        case "user":
            return [caller if value == "me" else value for value in term.values]
        case _:
            return list(term.values)


def _read_state(term: Term, value: str, violations: FieldViolations) -> frozenset[TaskState]:
    if value.lower() in _STATES:
        return _STATES[value.lower()]
    if value.upper() in Outcome.__members__:
        violations.add(
            "filter", f"{term.text!r}: {value} is an outcome; write outcome:{value.lower()}"
        )
    else:
        states = ", ".join(_STATES)
        hint = suggestion_text(value.lower(), _STATES)
        violations.add(
            "filter", f"{term.text!r}: there is no state {value[:40]!r}{hint}; there are {states}"
        )
    return frozenset()


def _read_member(term: Term, value: str, kind: Any, violations: FieldViolations) -> list[Any]:
    members = {member.value.lower(): member for member in kind}
    if value.lower() in members:
        return [members[value.lower()]]
    hint = suggestion_text(value.lower(), members)
    violations.add("filter", f"{term.text!r}: {value[:40]!r} is none of {', '.join(members)}{hint}")
    return []


def _range_fields(term: Term, now: float, violations: FieldViolations) -> Iterator[tuple[str, Any]]:
    if len(term.values) > 1:
        violations.add("filter", f"{term.text!r}: {term.key} takes one value")
        return
    value = term.values[0]
    match term.key:
        case "starred":
            if (starred := _read_boolean(term.text, term.operator, value, violations)) is not None:
                yield "starred", starred
        case "priority":
            yield from _priority_bounds(term, value, violations)
        case "age":
            yield from _age_bounds(term.text, term.operator, value, now, violations)
        case _:
            yield from _date_bounds(term.text, term.operator, value, violations)


def _priority_bounds(
    term: Term, value: str, violations: FieldViolations
) -> Iterator[tuple[str, int]]:
    member = Priority.__members__.get(value.upper())
    level = _read_number(term.text, value, violations) if member is None else int(member)
    if level is None:
        return
    if term.operator in (">", ">=", ":", "="):
        yield "priority_min", level + (term.operator == ">")
    if term.operator in ("<", "<=", ":", "="):
        yield "priority_max", level - (term.operator == "<")


def _merge(
    fields: dict[str, Any], term: Term, name: str, value: Any, violations: FieldViolations
) -> None:
    """Add a field. A second value of a field narrows the first one, or is a violation where that is impossible."""
    if name not in fields:
        fields[name] = value
    elif name.startswith("not_"):
        fields[name] = (
            fields[name] | value if isinstance(value, frozenset) else fields[name] + value
        )
    elif name in ("priority_min", "created_after"):
        fields[name] = max(fields[name], value)
    elif name in ("priority_max", "created_before"):
        fields[name] = min(fields[name], value)
    else:
        violations.add(
            "filter", f"{term.text!r}: {term.key} is given twice; separate alternatives by commas"
        )


def _read_number(term: str, value: str, violations: FieldViolations) -> int | None:
    if re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    violations.add("filter", f"{term!r}: {value[:40]!r} is not an integer")
    return None


def _read_boolean(term: str, operator: str, value: str, violations: FieldViolations) -> bool | None:
    if operator in (":", "=") and value.lower() in ("true", "false"):
        return value.lower() == "true"
    violations.add("filter", f"{term!r}: write :true or :false")
    return None


def _age_bounds(
    term: str, operator: str, value: str, now: float, violations: FieldViolations
) -> Iterator[tuple[str, float]]:
    """Yield the bound of a term such as `age<2d`, which means created less than two days ago."""
    match = _AGE.fullmatch(value.lower())
    if match is None or operator in (":", "="):
        violations.add("filter", f"{term!r}: write age<2d or age>90m, with one of s, m, h, d, w")
        return
    limit = now - float(match[1]) * _SECONDS[match[2]]
    yield ("created_after" if operator in ("<", "<=") else "created_before"), limit


def _date_bounds(
    term: str, operator: str, value: str, violations: FieldViolations
) -> Iterator[tuple[str, float]]:
    """Yield the bound of a term such as `created>2026-01-01`. A time without a zone is UTC."""
    if _AGE.fullmatch(value.lower()):
        violations.add(
            "filter", f"{term!r}: created takes a date; for an age write age<{value} or age>{value}"
        )
        return
    try:
        time = datetime.fromisoformat(value)
        limit = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        violations.add(
            "filter", f"{term!r}: {value[:40]!r} is not a date like 2026-01-01 or 2026-01-01T08:00"
        )
        return
    if operator in (":", "="):
        violations.add("filter", f"{term!r}: write created> or created<")
        return
    yield ("created_after" if operator in (">", ">=") else "created_before"), limit

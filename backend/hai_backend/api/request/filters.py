"""The filter language of ListTasks and WatchTasks: text to TaskFilter.

`hai.client.tasks.filters` defines the syntax. Only terms of state, user, name and tag may be negated.
    state:running,queued   outcome:failed   user:me   name:bert*   tag:sweep   group:default   type:jupyter
    priority>=30   starred:true   id:1,2   age<2d (younger than two days)   created>2026-01-01 (UTC)
    after:3 (waits for task 3 to end)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hai.client.taskfile.validation.violations import suggestion_text
from hai.client.tasks.filters import STATE_GROUPS, Term, parse_term, split_words
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import Rules
from hai_backend.api.request.filter_values import age, boolean, day, number
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
KEYS = (*_SETS, *_ONLY_SETS, *_RANGES)


def parse(text: str, caller: str, now: float) -> TaskFilter:
    """The filter that `text` says. Raises Invalid with every wrong term."""
    rules = Rules()
    if len(text) > limits.FILTER_CHARS:
        rules.add(
            "filter", f"has {len(text)} characters; at most {limits.FILTER_CHARS} are allowed"
        )
        rules.check()
    found: dict[str, Any] = {}
    for term in _terms(text, rules):
        for name, value in _fields(term, caller, now, rules):
            _merge(found, term, name, value, rules)
    rules.check()
    return TaskFilter(**found)


def parse_order(text: str) -> tuple[str, bool]:
    """`name desc` as (column, descending). Raises Invalid."""
    column, _, direction = text.strip().partition(" ")
    if not column:
        return "id", True
    rules = Rules()
    if column not in ORDERS:
        rules.add(
            "order_by",
            f"{column[:40]!r} must be one of {', '.join(ORDERS)}{suggestion_text(column, ORDERS)}",
        )
    if direction.strip().lower() not in ("", "asc", "desc"):
        rules.add("order_by", f"{direction.strip()[:40]!r} must be desc or nothing")
    rules.check()
    return column, direction.strip().lower() == "desc"


def _terms(text: str, rules: Rules) -> Iterator[Term]:
    for word in split_words(text):
        term = parse_term(word)
        if term is None or word.count('"') % 2:
            rules.add("filter", f"{word[:60]!r} is not key:value; known keys are {', '.join(KEYS)}")
        elif term.key not in KEYS:
            hint = suggestion_text(term.key, KEYS)
            rules.add(
                "filter",
                f"{term.text!r}: there is no key {term.key!r}{hint}; there are {', '.join(KEYS)}",
            )
        elif term.values:
            yield term
        else:
            rules.add("filter", f"{term.text!r} has no value")


def _fields(term: Term, caller: str, now: float, rules: Rules) -> Iterator[tuple[str, Any]]:
    """What a term sets in TaskFilter."""
    name = _SETS.get(term.key) or _ONLY_SETS.get(term.key)
    if term.negated and term.key not in _SETS:
        rules.add("filter", f"{term.text!r}: only {', '.join(_SETS)} can be negated")
    elif name is None:
        yield from _range(term, now, rules)
    elif term.operator not in (":", "="):
        rules.add(
            "filter", f"{term.text!r}: {term.key} can not be compared; write {term.key}:value"
        )
    else:
        values = _values(term, caller, rules)
        if values:
            merged = tuple(values) if term.key == "name" else frozenset(values)
            yield (f"not_{name}" if term.negated else name), merged


def _values(term: Term, caller: str, rules: Rules) -> list[Any]:
    match term.key:
        case "state":
            return [s for v in term.values for s in _state(term, v, rules)]
        case "outcome":
            return [o for v in term.values for o in _word(term, v, Outcome, rules)]
        case "type":
            return [t for v in term.values for t in _word(term, v, TaskType, rules)]
        case "id" | "after":
            return [i for v in term.values if (i := number(term.text, v, rules)) is not None]
        case "user":
            return [caller if value == "me" else value for value in term.values]
        case _:
            return list(term.values)


def _state(term: Term, value: str, rules: Rules) -> frozenset[TaskState]:
    if value.lower() in _STATES:
        return _STATES[value.lower()]
    if value.upper() in Outcome.__members__:
        rules.add("filter", f"{term.text!r}: {value} is an outcome; write outcome:{value.lower()}")
    else:
        known = ", ".join(_STATES)
        hint = suggestion_text(value.lower(), _STATES)
        rules.add(
            "filter", f"{term.text!r}: there is no state {value[:40]!r}{hint}; there are {known}"
        )
    return frozenset()


def _word(term: Term, value: str, kind: Any, rules: Rules) -> list[Any]:
    known = {member.value.lower(): member for member in kind}
    if value.lower() in known:
        return [known[value.lower()]]
    hint = suggestion_text(value.lower(), known)
    rules.add("filter", f"{term.text!r}: {value[:40]!r} is none of {', '.join(known)}{hint}")
    return []


def _range(term: Term, now: float, rules: Rules) -> Iterator[tuple[str, Any]]:
    if len(term.values) > 1:
        rules.add("filter", f"{term.text!r}: {term.key} takes one value")
        return
    value = term.values[0]
    match term.key:
        case "starred":
            if (wanted := boolean(term.text, term.operator, value, rules)) is not None:
                yield "starred", wanted
        case "priority":
            yield from _priority(term, value, rules)
        case "age":
            yield from age(term.text, term.operator, value, now, rules)
        case _:
            yield from day(term.text, term.operator, value, rules)


def _priority(term: Term, value: str, rules: Rules) -> Iterator[tuple[str, int]]:
    named = Priority.__members__.get(value.upper())
    level = number(term.text, value, rules) if named is None else int(named)
    if level is None:
        return
    if term.operator in (">", ">=", ":", "="):
        yield "priority_min", level + (term.operator == ">")
    if term.operator in ("<", "<=", ":", "="):
        yield "priority_max", level - (term.operator == "<")


def _merge(found: dict[str, Any], term: Term, name: str, value: Any, rules: Rules) -> None:
    """Two terms narrow each other where TaskFilter can say that; else the caller must write one."""
    if name not in found:
        found[name] = value
    elif name.startswith("not_"):
        found[name] = found[name] | value if isinstance(value, frozenset) else found[name] + value
    elif name in ("priority_min", "created_after"):
        found[name] = max(found[name], value)
    elif name in ("priority_max", "created_before"):
        found[name] = min(found[name], value)
    else:
        rules.add(
            "filter", f"{term.text!r}: {term.key} is given twice; separate alternatives by commas"
        )

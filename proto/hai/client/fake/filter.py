"""Filters of the fake server: the language of ListTasksRequest.filter, but for its terms about times."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from hai.client.errors import Invalid, Violation
from hai.client.text.enum_names import word
from hai.v1.task_pb2 import Task, TaskOutcome, TaskState

_TERMS = re.compile(r'(?:[^\s"]|"[^"]*")+')
_TERM = re.compile(r"(-?)([a-z_]+)(:|>=|<=|>|<)(.+)", re.DOTALL)
_VALUES = re.compile(r'"([^"]*)"|([^,"]+)')
_QUEUED = ("WAITING_INIT", "SUSPENDED")
_STATES = {
    "queued": _QUEUED,
    "unfinished": (*_QUEUED, "RUNNING"),
    "waiting": ("WAITING_INIT",),
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}

Test = Callable[[Task], bool]


def matcher(text: str, caller: str) -> Test:
    """A function that says whether a task matches all terms. Raises Invalid."""
    tests = [_term(word, caller) for word in _TERMS.findall(text)]
    return lambda task: all(test(task) for test in tests)


def _term(word: str, caller: str) -> Test:
    match = _TERM.fullmatch(word)
    if match is None:
        raise _invalid(f"{word!r} is not key:value")
    sign, key, relation, values = match.groups()
    found = [quoted or plain for quoted, plain in _VALUES.findall(values)]
    test = _any(key, found, caller) if relation == ":" else _compared(key, relation, found)
    return (lambda task: not test(task)) if sign else test


def _compared(key: str, relation: str, values: list[str]) -> Test:
    if key != "priority" or len(values) != 1 or not re.fullmatch(r"-?\d+", values[0]):
        raise _invalid(f"{key}{relation}{','.join(values)} cannot be compared")
    return lambda task: _COMPARE[relation](task.priority, int(values[0]))


def _any(key: str, values: list[str], caller: str) -> Test:
    one_of = [_equals(key, value, caller) for value in values]
    return lambda task: any(test(task) for test in one_of)


def _equals(key: str, value: str, caller: str) -> Test:
    match key:
        case "state":
            states = _STATES.get(value, (value.upper(),))
            return lambda t: word(TaskState, t.state) in states
        case "outcome":
            return lambda t: word(TaskOutcome, t.outcome) == value.upper()
        case "name":
            pattern = re.compile(".*".join(map(re.escape, value.split("*"))), re.DOTALL)
            return lambda t: pattern.fullmatch(t.name) is not None
        case "tag":
            return lambda t: value in t.tags
        case "starred":
            return lambda t: t.starred is (value == "true")
        case "user":
            return lambda t: t.user == (caller if value == "me" else value)
        case "type":
            return lambda t: t.task_type == value
        case "after":
            return lambda t: (
                value in map(str, t.awaited) and t.state != TaskState.TASK_STATE_FINISHED
            )
        case "id" | "group" | "priority":
            return lambda t: str(getattr(t, key)) == value
    raise _invalid(f"{key} is not a known key")


def _invalid(message: str) -> Invalid:
    return Invalid(f"filter: {message}", (Violation("filter", message),))

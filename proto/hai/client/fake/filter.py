"""Filters of tasks for the fake server: the language of ListTasksRequest.filter without terms about times."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hai.client.errors import Invalid, Violation
from hai.client.tasks.filters import COMPARE, STATE_GROUPS, parse_term, split_words
from hai.client.text.formatting import enum_name
from hai.v1.task_pb2 import Task, TaskOutcome, TaskState

Test = Callable[[Task], bool]


def build_matcher(text: str, caller: str) -> Test:
    """Return a function that tests whether a task matches all terms. Raises Invalid."""
    tests = [_build_test(each, caller) for each in split_words(text)]
    return lambda task: all(test(task) for test in tests)


def _build_test(text: str, caller: str) -> Test:
    term = parse_term(text)
    if term is None or not term.values:
        raise _invalid_filter(f"{text!r} is not key:value")
    if term.operator == ":":
        test = _any_value(term.key, term.values, caller)
    elif term.key == "priority" and re.fullmatch(r"-?\d+", term.values[0]):
        level = int(term.values[0])
        return lambda task: COMPARE[term.operator](task.priority, level)
    else:
        raise _invalid_filter(f"{text!r} cannot be compared")
    return (lambda task: not test(task)) if term.negated else test


def _any_value(key: str, values: Sequence[str], caller: str) -> Test:
    one_of = [_value_test(key, value, caller) for value in values]
    return lambda task: any(test(task) for test in one_of)


def _value_test(key: str, value: str, caller: str) -> Test:
    match key:
        case "state":
            states = STATE_GROUPS.get(value, (value.upper(),))
            return lambda t: enum_name(TaskState, t.state) in states
        case "outcome":
            return lambda t: enum_name(TaskOutcome, t.outcome) == value.upper()
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
    raise _invalid_filter(f"{key} is not a known key")


def _invalid_filter(message: str) -> Invalid:
    return Invalid(f"filter: {message}", (Violation("filter", message),))

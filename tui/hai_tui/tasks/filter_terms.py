"""The terms of a filter line: which tasks match, and the filter that asks the server for them. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING

from hai.client.tasks.filters import COMPARE, parse_term, quote
from hai.client.tasks.silent_agents import is_silent
from hai.task.levels import PRIORITIES
from hai_tui.formatting.values import held_seconds
from hai_tui.i18n import text
from hai_tui.safe_regex import SafeRegex

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai_tui.feed.task_row import TaskRow

Keep = Callable[[list["TaskRow"], float], list["TaskRow"]]
Holds = Callable[["TaskRow", float], bool]

_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
# A value of `status:` -> the statuses that it matches
_STATUSES: Mapping[str, tuple[str, ...]] = {
    "waiting": ("WAITING_INIT",), "queued": ("WAITING_INIT", "SUSPENDED", "HELD"),
    "suspended": ("SUSPENDED", "HELD"), "held": ("HELD",),
    "running": ("RUNNING", "CREATED", "BUILDING", "SUSPENDING", "STOPPING", "TERMINATING"),
    "starting": ("CREATED", "BUILDING"), "leaving": ("SUSPENDING", "STOPPING", "TERMINATING"),
    "finished": ("SUCCEEDED", "FAILED", "STOPPED", "CANCELED"),
    "unfinished": ("WAITING_INIT", "SUSPENDED", "HELD", "RUNNING", "CREATED", "BUILDING",
                   "SUSPENDING", "STOPPING", "TERMINATING"),
    "succeeded": ("SUCCEEDED",), "failed": ("FAILED",), "stopped": ("STOPPED",),
    "canceled": ("CANCELED",), "cancelled": ("CANCELED",),
}  # fmt: skip
# A value of `status:` -> the term for the server, which matches at least these tasks
_SERVER_TERMS = {
    "waiting": "state:waiting", "queued": "state:queued", "suspended": "state:suspended",
    "held": "state:queued", "running": "state:running", "starting": "state:running",
    "leaving": "state:running", "finished": "state:finished", "unfinished": "state:unfinished",
    "succeeded": "outcome:succeeded", "failed": "outcome:failed", "stopped": "outcome:stopped",
    "canceled": "outcome:canceled", "cancelled": "outcome:canceled",
}  # fmt: skip
# A key that compares numbers -> the number of a task
_NUMBER_VALUES: Mapping[str, Callable[[Task], float]] = {
    "nodes": lambda t: t.node_count,
    "runs": lambda t: t.run_count,
    "priority": lambda t: t.priority,
    "failures": lambda t: t.failure_count,
    "place": lambda t: t.waiting.queue_place,
    "id": lambda t: t.id,
}
# A key whose value must be equal -> the value of a task
_EXACT_VALUES: Mapping[str, Callable[[TaskRow], str]] = {
    "user": lambda f: f.user,
    "group": lambda f: f.task.group,
    "zone": lambda f: f.task.zone,
    "type": lambda f: f.task.task_type,
}
# A key whose value must contain the text -> the value of a task
_SUBSTRING_VALUES: Mapping[str, Callable[[TaskRow], str]] = {
    "name": lambda f: f.name,
    "why": lambda f: _reason_text(f.task).lower(),
}
_SERVER_KEYS = ("user", "group", "type")  # keys that the server knows, too
_ALIASES = {
    "state": "status", "outcome": "status", "is": "status", "tags": "tag", "star": "starred",
}  # fmt: skip
KEYS = ("status", "user", "name", "tag", "group", "zone", "type", "why", "priority", "nodes", "runs",
        "failures", "place", "id", "after", "age", "used", "starred", "node")  # fmt: skip
"""The keys of terms, which stand before a colon."""

STATUS_KEYWORDS = tuple(_STATUSES)
"""The values of the key `status`."""


class FilterError(Exception):
    """An invalid term. The message says which, and suggests a similar one."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the line. It filters a list at once, because a call for each task would be slower."""

    keep: Keep
    server: str = ""  # the filter for the server, which may match more tasks
    problem: Callable[[], str] = str  # why it has stopped matching; empty if it works

    def negated(self) -> Term:
        """Return a term for all other tasks. It has no server filter, which would match too few."""
        return Term(self._others, problem=self.problem)

    def _others(self, tasks: list[TaskRow], now: float) -> list[TaskRow]:
        matching_ids = {task.id for task in self.keep(tasks, now)}
        return [task for task in tasks if task.id not in matching_ids]


def _per_task(holds: Holds, server: str = "") -> Term:
    """Return a term that checks one task at a time."""
    return Term(lambda tasks, now: [task for task in tasks if holds(task, now)], server)


def make_term(term_text: str, me: str) -> Term:
    """Parse one word of a filter line. Raise FilterError."""
    if len(term_text) > 1 and term_text[0] == term_text[-1] == "/":
        return _regex(term_text[1:-1])
    found = parse_term(term_text)
    if found is None or found.negated:
        part = term_text.strip('"').lower()
        return Term(lambda tasks, now: [task for task in tasks if part in task.searched_text])
    key = _ALIASES.get(found.key, found.key)
    if key not in KEYS:
        raise FilterError(text("filter.key", name=found.key, near=_suggestion(key, KEYS)))
    if not found.values:
        raise FilterError(text("filter.value", name=key))
    return _make_keyed_term(key, found.operator, found.values, me)


def _make_keyed_term(key: str, relation: str, values: Sequence[str], me: str) -> Term:
    """Return the term for a key, such as `status` in `status:failed`. Raise FilterError."""
    if key in ("age", "used"):
        return _span(key, relation, ",".join(values))
    if key in _NUMBER_VALUES and (relation != ":" or key != "id"):
        return _number(key, relation, values)
    if relation not in (":", "="):
        raise FilterError(text("filter.compare", name=key, relation=relation))
    match key:
        case "status":
            return _status(values)
        case "starred":
            return _starred(values[0])
        case "tag":
            return _tags(values)
        case "node":
            return _on_nodes(values)
        case "id":
            return _ids(values)
        case "after":
            return _after(values)
        case "name" | "why":
            return _part(key, values)
    return _exact(key, values, me)


def _status(values: Sequence[str]) -> Term:
    keywords = [value.lower() for value in values]
    if unknown := [keyword for keyword in keywords if keyword not in _STATUSES]:
        raise FilterError(
            text("filter.status", value=unknown[0], near=_suggestion(unknown[0], STATUS_KEYWORDS))
        )
    requested = frozenset(status for keyword in keywords for status in _STATUSES[keyword])
    server = _SERVER_TERMS[keywords[0]] if len(keywords) == 1 else ""
    return Term(lambda tasks, now: [task for task in tasks if task.status in requested], server)


def _starred(value: str) -> Term:
    if value.lower() not in ("true", "yes", "false", "no"):
        raise FilterError(text("filter.yes", value=value))
    requested = value.lower() in ("true", "yes")
    return _per_task(
        lambda task, now: task.task.starred is requested, f"starred:{str(requested).lower()}"
    )


def _number(key: str, relation: str, values: Sequence[str]) -> Term:
    value_of, requested = _NUMBER_VALUES[key], {_parse_number(key, value) for value in values}
    if len(requested) > 1 and relation == ":":
        return _per_task(lambda task, now: value_of(task.task) in requested)
    number = _parse_number(key, values[0])
    compare = COMPARE["=" if relation == ":" else relation]
    sign = ":" if relation in (":", "=") else relation
    server = f"priority{sign}{number:g}" if key == "priority" else ""
    return _per_task(lambda task, now: compare(value_of(task.task), number), server)


def _parse_number(key: str, value: str) -> float:
    levels = {name.lower(): number for name, number in PRIORITIES.items()}
    if key == "priority" and value.lower() in levels:
        return levels[value.lower()]
    if not re.fullmatch(r"-?\d{1,18}", value):
        suggestion = _suggestion(value.lower(), tuple(levels)) if key == "priority" else ""
        raise FilterError(text("filter.number", name=key, value=value) + suggestion)
    return int(value)


def _span(key: str, relation: str, value_text: str) -> Term:
    """Return a term that compares an age, or the time for which a task has held nodes."""
    found = _SPAN.fullmatch(value_text)
    if not found or not any(found.groups()):
        raise FilterError(text("filter.span", value=value_text))
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    seconds = days * 86400 + hours * 3600 + minutes * 60 + rest
    compare = COMPARE["<=" if relation in (":", "=") else relation]
    if key == "used":
        return _per_task(lambda task, now: compare(held_seconds(task.task, now), seconds))
    younger = compare in (operator.lt, operator.le)
    server = f"age{'<' if relation in (':', '=', '<=') else relation[0]}{seconds + 60}s"
    return _per_task(
        lambda task, now: compare(now - task.created, seconds), server if younger else ""
    )


def _exact(key: str, values: Sequence[str], me: str) -> Term:
    names = [me if key == "user" and value == "me" and me else value for value in values]
    value_of, is_match = _EXACT_VALUES[key], _make_matcher(names)
    plain = key in _SERVER_KEYS and not _has_wildcard(names)
    server = _server_term(key, names) if plain else ""
    return _per_task(lambda task, now: is_match(value_of(task)), server)


def _part(key: str, values: Sequence[str]) -> Term:
    value_of, parts = _SUBSTRING_VALUES[key], [value.lower() for value in values]
    if _has_wildcard(parts):
        is_match = _make_matcher(part if "*" in part else f"*{part}*" for part in parts)
        return _per_task(lambda task, now: is_match(value_of(task)))
    return _per_task(lambda task, now: any(part in value_of(task) for part in parts))


def _tags(values: Sequence[str]) -> Term:

    is_match = _make_matcher(values)
    server = "" if _has_wildcard(values) else _server_term("tag", values)
    return _per_task(lambda task, now: any(map(is_match, task.tags)), server)


def _on_nodes(values: Sequence[str]) -> Term:
    is_match = _make_matcher(values)
    return _per_task(lambda task, now: any(is_match(rank.node) for rank in task.task.run.ranks))


def _ids(values: Sequence[str]) -> Term:
    requested = {int(_parse_number("id", value)) for value in values}
    server = f"id:{','.join(map(str, sorted(requested)))}"
    return _per_task(lambda task, now: task.id in requested, server)


def _after(values: Sequence[str]) -> Term:
    requested = {int(_parse_number("after", value)) for value in values}
    server = f"after:{','.join(map(str, sorted(requested)))}"
    return _per_task(lambda task, now: not requested.isdisjoint(task.task.awaited), server)


def _regex(pattern: str) -> Term:
    try:
        requested = SafeRegex(pattern, re.IGNORECASE)
    except re.error as error:
        raise FilterError(text("filter.regex", pattern=pattern, error=error)) from error
    return Term(
        lambda tasks, now: [task for task in tasks if requested.search(task.name[:200])],
        problem=lambda: text("filter.slow", pattern=pattern) if requested.gave_up else "",
    )


def _server_term(key: str, values: Iterable[str]) -> str:
    return f"{key}:{','.join(map(quote, values))}"


def _has_wildcard(values: Iterable[str]) -> bool:
    return any("*" in value for value in values)


def _make_matcher(values: Iterable[str]) -> Callable[[str], bool]:
    """Return a predicate that is True for these texts; * matches anything."""
    requested = set(values)
    if not _has_wildcard(requested):
        return requested.__contains__
    patterns = [re.compile(translate(value)).match for value in requested]
    return lambda value: any(match(value) for match in patterns)


def _reason_text(task: Task) -> str:
    waiting, silent = task.waiting, "agent silent" if any(map(is_silent, task.run.ranks)) else ""
    return f"{waiting.reason} {waiting.message} {task.reason} {task.run.reason} {silent}"


def _suggestion(term_text: str, candidates: tuple[str, ...]) -> str:
    matches = get_close_matches(term_text, candidates, n=1, cutoff=0.5)
    if matches:
        return text("filter.near", word=matches[0])
    return text("filter.known", words=", ".join(candidates))

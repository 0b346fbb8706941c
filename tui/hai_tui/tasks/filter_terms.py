"""What one term of a filter line means: which tasks it holds for, and what the server is asked instead. Pure."""

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
_STATES: Mapping[str, tuple[str, ...]] = {
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
_SERVER_TERMS = {
    "waiting": "state:waiting", "queued": "state:queued", "suspended": "state:suspended",
    "held": "state:queued", "running": "state:running", "starting": "state:running",
    "leaving": "state:running", "finished": "state:finished", "unfinished": "state:unfinished",
    "succeeded": "outcome:succeeded", "failed": "outcome:failed", "stopped": "outcome:stopped",
    "canceled": "outcome:canceled", "cancelled": "outcome:canceled",
}  # fmt: skip
_NUMBERS: Mapping[str, Callable[[Task], float]] = {
    "nodes": lambda t: t.node_count,
    "runs": lambda t: t.run_count,
    "priority": lambda t: t.priority,
    "failures": lambda t: t.failure_count,
    "place": lambda t: t.waiting.queue_place,
    "id": lambda t: t.id,
}
_EXACT: Mapping[str, Callable[[TaskRow], str]] = {
    "user": lambda f: f.user,
    "group": lambda f: f.task.group,
    "zone": lambda f: f.task.zone,
    "type": lambda f: f.task.task_type,
}
_PARTS: Mapping[str, Callable[[TaskRow], str]] = {
    "name": lambda f: f.name,
    "why": lambda f: _why(f.task).lower(),
}
_SERVER_KEYS = ("user", "group", "type")
_ALIASES = {
    "state": "status", "outcome": "status", "is": "status", "tags": "tag", "star": "starred",
}  # fmt: skip
KEYS = ("status", "user", "name", "tag", "group", "zone", "type", "why", "priority", "nodes", "runs",
        "failures", "place", "id", "after", "age", "used", "starred", "node")  # fmt: skip
"""What may stand before the colon."""

STATUS_KEYWORDS = tuple(_STATES)
"""What may stand after `status:`."""


class FilterError(Exception):
    """A term that means nothing; the message says which, and what was perhaps meant."""


@dataclass(frozen=True, slots=True)
class Term:
    """One word of the line. It is asked of many tasks at once: to ask of each costs more than the answer."""

    keep: Keep
    server: str = ""  # what the server is asked; it may answer with more
    problem: Callable[[], str] = str  # why it finds nothing any more; empty: it does

    def negated(self) -> Term:
        """The same for all others; the server is asked nothing, as it might answer with less."""
        return Term(self._others, problem=self.problem)

    def _others(self, tasks: list[TaskRow], now: float) -> list[TaskRow]:
        kept_ids = {task.id for task in self.keep(tasks, now)}
        return [task for task in tasks if task.id not in kept_ids]


def _each(holds: Holds, server: str = "") -> Term:
    """A term that is looked at task by task."""
    return Term(lambda tasks, now: [task for task in tasks if holds(task, now)], server)


def term(term_text: str, me: str) -> Term:
    """What a word means. Raises FilterError."""
    if len(term_text) > 1 and term_text[0] == term_text[-1] == "/":
        return _regex(term_text[1:-1])
    found = parse_term(term_text)
    if found is None or found.negated:
        part = term_text.strip('"').lower()
        return Term(lambda tasks, now: [task for task in tasks if part in task.hay])
    key = _ALIASES.get(found.key, found.key)
    if key not in KEYS:
        raise FilterError(text("filter.key", name=found.key, near=_unknown_message(key, KEYS)))
    if not found.values:
        raise FilterError(text("filter.value", name=key))
    return _keyed(key, found.operator, found.values, me)


def _keyed(key: str, relation: str, values: Sequence[str], me: str) -> Term:
    if key in ("age", "used"):
        return _span(key, relation, ",".join(values))
    if key in _NUMBERS and (relation != ":" or key != "id"):
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
    if wrong := [term_text for term_text in keywords if term_text not in _STATES]:
        raise FilterError(
            text("filter.status", value=wrong[0], near=_unknown_message(wrong[0], STATUS_KEYWORDS))
        )
    requested = frozenset(state for term_text in keywords for state in _STATES[term_text])
    server = _SERVER_TERMS[keywords[0]] if len(keywords) == 1 else ""
    return Term(lambda tasks, now: [task for task in tasks if task.status in requested], server)


def _starred(value: str) -> Term:
    if value.lower() not in ("true", "yes", "false", "no"):
        raise FilterError(text("filter.yes", value=value))
    requested = value.lower() in ("true", "yes")
    return _each(
        lambda task, now: task.task.starred is requested, f"starred:{str(requested).lower()}"
    )


def _number(key: str, relation: str, values: Sequence[str]) -> Term:
    value_of, requested = _NUMBERS[key], {_parsed(key, value) for value in values}
    if len(requested) > 1 and relation == ":":
        return _each(lambda task, now: value_of(task.task) in requested)
    number = _parsed(key, values[0])
    compare = COMPARE["=" if relation == ":" else relation]
    sign = ":" if relation in (":", "=") else relation
    server = f"priority{sign}{number:g}" if key == "priority" else ""
    return _each(lambda task, now: compare(value_of(task.task), number), server)


def _parsed(key: str, value: str) -> float:
    levels = {name.lower(): number for name, number in PRIORITIES.items()}
    if key == "priority" and value.lower() in levels:
        return levels[value.lower()]
    if not re.fullmatch(r"-?\d{1,18}", value):
        matches = _unknown_message(value.lower(), tuple(levels)) if key == "priority" else ""
        raise FilterError(text("filter.number", name=key, value=value) + matches)
    return int(value)


def _span(key: str, relation: str, value_text: str) -> Term:
    found = _SPAN.fullmatch(value_text)
    if not found or not any(found.groups()):
        raise FilterError(text("filter.span", value=value_text))
    days, hours, minutes, left = (int(part or 0) for part in found.groups())
    seconds = days * 86400 + hours * 3600 + minutes * 60 + left
    compare = COMPARE["<=" if relation in (":", "=") else relation]
    if key == "used":
        return _each(lambda task, now: compare(held_seconds(task.task, now), seconds))
    younger = compare in (operator.lt, operator.le)
    server = f"age{'<' if relation in (':', '=', '<=') else relation[0]}{seconds + 60}s"
    return _each(lambda task, now: compare(now - task.created, seconds), server if younger else "")


def _exact(key: str, values: Sequence[str], me: str) -> Term:
    names = [me if key == "user" and value == "me" and me else value for value in values]
    value_of, among = _EXACT[key], _among(names)
    plain = key in _SERVER_KEYS and not _starry(names)
    server = _listed(key, names) if plain else ""
    return _each(lambda task, now: among(value_of(task)), server)


def _part(key: str, values: Sequence[str]) -> Term:
    value_of, parts = _PARTS[key], [value.lower() for value in values]
    if _starry(parts):
        among = _among(part if "*" in part else f"*{part}*" for part in parts)
        return _each(lambda task, now: among(value_of(task)))
    return _each(lambda task, now: any(part in value_of(task) for part in parts))


def _tags(values: Sequence[str]) -> Term:
    among = _among(values)
    server = "" if _starry(values) else _listed("tag", values)
    return _each(lambda task, now: any(map(among, task.tags)), server)


def _on_nodes(values: Sequence[str]) -> Term:
    among = _among(values)
    return _each(lambda task, now: any(among(rank.node) for rank in task.task.run.ranks))


def _ids(values: Sequence[str]) -> Term:
    requested = {int(_parsed("id", value)) for value in values}
    server = f"id:{','.join(map(str, sorted(requested)))}"
    return _each(lambda task, now: task.id in requested, server)


def _after(values: Sequence[str]) -> Term:
    requested = {int(_parsed("after", value)) for value in values}
    server = f"after:{','.join(map(str, sorted(requested)))}"
    return _each(lambda task, now: not requested.isdisjoint(task.task.awaited), server)


def _regex(pattern: str) -> Term:
    try:
        requested = SafeRegex(pattern, re.IGNORECASE)
    except re.error as error:
        raise FilterError(text("filter.regex", pattern=pattern, error=error)) from error
    return Term(
        lambda tasks, now: [task for task in tasks if requested.search(task.name[:200])],
        problem=lambda: text("filter.slow", pattern=pattern) if requested.gave_up else "",
    )


def _listed(key: str, values: Iterable[str]) -> str:
    return f"{key}:{','.join(map(quote, values))}"


def _starry(values: Iterable[str]) -> bool:
    return any("*" in value for value in values)


def _among(values: Iterable[str]) -> Callable[[str], bool]:
    """Whether a text is one of these; * stands for anything."""
    requested = set(values)
    if not _starry(requested):
        return requested.__contains__
    patterns = [re.compile(translate(value)).match for value in requested]
    return lambda message: any(match(message) for match in patterns)


def _why(task: Task) -> str:
    waits, silent = task.waiting, "agent silent" if any(map(is_silent, task.run.ranks)) else ""
    return f"{waits.reason} {waits.message} {task.reason} {task.run.reason} {silent}"


def _unknown_message(term_text: str, candidates: tuple[str, ...]) -> str:
    matches = get_close_matches(term_text, candidates, n=1, cutoff=0.5)
    if matches:
        return text("filter.near", word=matches[0])
    return text("filter.known", words=", ".join(candidates))

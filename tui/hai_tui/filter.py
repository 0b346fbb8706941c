"""The filter line of the task list: `status:failed tag:bert user:me age:<2d`. Pure.

Terms are ANDed, commas OR values, a leading - or ! negates; a bare word is looked for in name, user,
tags and id, /…/ is a regular expression on the name. It is `hai list`'s language, made forgiving for
typing: what is known locally is matched here, and `server` is the part that the server understands,
which asks it for older tasks (it may answer with more than match; never with less).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hai.client.resolve import quoted
from hai_tui.cli.human import PRIORITIES
from hai_tui.i18n import text
from hai_tui.status import status_of

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

Match = Callable[["Task", float], bool]

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_TERM = re.compile(r"([A-Za-z_]+)(:?(?:>=|<=|>|<|=)|:)(.*)", re.DOTALL)
_GROWS = re.compile(r"[a-z_]\w*")  # a bare word that narrows as it grows; digits may be a whole id
_VALUE = re.compile(r'"([^"]*)"?|([^,"]+)')
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq,
}  # fmt: skip
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
_ASKED = {
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
_TEXTS: Mapping[str, Callable[[Task], str]] = {
    "user": lambda t: t.user,
    "name": lambda t: t.name,
    "group": lambda t: t.group,
    "zone": lambda t: t.zone,
    "type": lambda t: t.task_type,
    "why": lambda t: f"{t.waiting.reason} {t.waiting.message} {t.reason} {t.run.reason}",
}
_SERVER_KEYS = ("user", "group", "type")
KEYS = ("status", "user", "name", "tag", "group", "zone", "type", "why", "priority", "nodes", "runs",
        "failures", "place", "id", "age", "used", "starred", "node")  # fmt: skip
"""What may stand before the colon."""

STATUS_WORDS = tuple(_STATES)
"""What may stand after `status:`."""

_ALIASES = {
    "state": "status",
    "outcome": "status",
    "is": "status",
    "tags": "tag",
    "star": "starred",
}


class FilterError(Exception):
    """A term that means nothing; the message says which, and what was perhaps meant."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What matches, and the part of it that the server understands."""

    source: str
    terms: tuple[Match, ...]
    server: str
    timed: bool = False  # matches change as time passes
    words: tuple[str, ...] = ()

    def narrows(self, earlier: Filter) -> bool:
        """True when nothing matches that did not match the earlier one: it is enough to look among those."""
        if self.words[: len(earlier.words)] == earlier.words:
            return True
        if not earlier.words or len(self.words) < len(earlier.words):
            return False
        *same, last = earlier.words
        longer = self.words[len(same)]
        grown = _GROWS.fullmatch(last) and _GROWS.fullmatch(longer) and longer.startswith(last)
        return bool(grown) and list(self.words[: len(same)]) == same

    def matches(self, task: Task, now: float) -> bool:
        """True when every term does."""
        for term in self.terms:  # noqa: SIM110 - asked of ten thousand tasks at each key
            if not term(task, now):
                return False
        return True


def parse(source: str, me: str = "") -> Filter:
    """The filter that a line means; `me` is the caller. Raises FilterError."""
    words = tuple(_WORD.findall(source))
    parsed = [_term(word, me) for word in words]
    asked = [server for _, server, _ in parsed if server]
    terms = tuple(match for match, _, _ in parsed)
    return Filter(source, terms, " ".join(asked), any(timed for _, _, timed in parsed), words)


def _term(word: str, me: str) -> tuple[Match, str, bool]:
    negated = len(word) > 1 and word[0] in "-!"
    match, server, timed = _positive(word[1:] if negated else word, me)
    if not negated:
        return match, server, timed
    return lambda task, now: not match(task, now), "", timed


def _positive(word: str, me: str) -> tuple[Match, str, bool]:
    if len(word) > 1 and word[0] == word[-1] == "/":
        return _regex(word[1:-1]), "", False
    found = _TERM.fullmatch(word)
    if found is None:
        return _anywhere(word.strip('"').lower()), "", False
    key, relation, rest = found[1].lower(), found[2], found[3]
    key = _ALIASES.get(key, key)
    if key not in KEYS:
        raise FilterError(text("filter.key", name=found[1], near=_near(key, KEYS)))
    if relation == ":" and rest[:1] in ("<", ">", "="):
        relation, rest = re.match(r"[<>]=?|=", rest)[0], rest.lstrip("<>=")  # type: ignore[index]
    relation = relation.lstrip(":") or ":"
    if not rest:
        raise FilterError(text("filter.value", name=key))
    return _keyed(key, relation, rest, me)


def _keyed(key: str, relation: str, rest: str, me: str) -> tuple[Match, str, bool]:
    values = [inside or plain for inside, plain in _VALUE.findall(rest)]
    if key in ("age", "used"):
        return _span(key, relation, rest)
    if key in _NUMBERS and (relation != ":" or key != "id"):
        return _number(key, relation, values)
    if relation not in (":", "="):
        raise FilterError(text("filter.compare", name=key, relation=relation))
    match key:
        case "status":
            return _status(values)
        case "starred":
            wanted = _yes(values[0])
            return (lambda t, now: t.starred is wanted), f"starred:{str(wanted).lower()}", False
        case "tag":
            return _tags(values)
        case "node":
            return (lambda t, now: any(r.node in values for r in t.run.ranks)), "", False
        case "id":
            return _ids(values)
    return _textual(key, values, me)


def _status(values: list[str]) -> tuple[Match, str, bool]:
    words = [value.lower() for value in values]
    if wrong := [word for word in words if word not in _STATES]:
        raise FilterError(text("filter.status", value=wrong[0], near=_near(wrong[0], STATUS_WORDS)))
    wanted = frozenset(state for word in words for state in _STATES[word])
    server = _ASKED[words[0]] if len(words) == 1 else ""
    return (lambda task, now: status_of(task) in wanted), server, False


def _number(key: str, relation: str, values: list[str]) -> tuple[Match, str, bool]:
    number, value_of = _parsed(key, values[0]), _NUMBERS[key]
    compare = _COMPARE["=" if relation == ":" else relation]
    sign = ":" if relation in (":", "=") else relation
    server = f"priority{sign}{number:g}" if key == "priority" else ""
    if len(values) > 1 and relation == ":":
        wanted = {_parsed(key, value) for value in values}
        return (lambda task, now: value_of(task) in wanted), "", False
    return (lambda task, now: compare(value_of(task), number)), server, False


def _parsed(key: str, value: str) -> float:
    levels = {name.lower(): number for name, number in PRIORITIES.items()}
    if key == "priority" and value.lower() in levels:
        return levels[value.lower()]
    if not re.fullmatch(r"-?\d{1,18}", value):
        near = _near(value.lower(), tuple(levels)) if key == "priority" else ""
        raise FilterError(text("filter.number", name=key, value=value) + near)
    return int(value)


def _span(key: str, relation: str, rest: str) -> tuple[Match, str, bool]:
    found = _SPAN.fullmatch(rest)
    if not found or not any(found.groups()):
        raise FilterError(text("filter.span", value=rest))
    days, hours, minutes, left = (int(part or 0) for part in found.groups())
    seconds = days * 86400 + hours * 3600 + minutes * 60 + left
    compare = _COMPARE["<=" if relation in (":", "=") else relation]
    if key == "used":
        return (lambda task, now: compare(task.run_seconds, seconds)), "", False
    server = f"age{'<' if relation in (':', '=', '<=') else relation[0]}{seconds + 60}s"
    asked = server if compare in (operator.lt, operator.le) else ""
    return (lambda task, now: compare(now - task.create_time.seconds, seconds)), asked, True


def _textual(key: str, values: list[str], me: str) -> tuple[Match, str, bool]:
    value_of, loose = _TEXTS[key], key in ("name", "why")
    names = [me if key == "user" and value == "me" and me else value for value in values]
    exact = not loose and not any("*" in name for name in names)
    server = f"{key}:{','.join(map(quoted, names))}" if exact and key in _SERVER_KEYS else ""
    if loose:
        parts = [n.lower() if "*" in n else f"*{n.lower()}*" for n in names]
        return (lambda t, now: any(fnmatchcase(value_of(t).lower(), p) for p in parts)), "", False
    return (lambda task, now: any(fnmatchcase(value_of(task), n) for n in names)), server, False


def _tags(values: list[str]) -> tuple[Match, str, bool]:
    plain = not any("*" in value for value in values)
    server = f"tag:{','.join(map(quoted, values))}" if plain else ""
    return (
        (lambda task, now: any(fnmatchcase(tag, v) for tag in task.tags for v in values)),
        server,
        False,
    )


def _ids(values: list[str]) -> tuple[Match, str, bool]:
    wanted = {int(_parsed("id", value)) for value in values}
    return (lambda task, now: task.id in wanted), f"id:{','.join(map(str, sorted(wanted)))}", False


_HAY: dict[int, tuple[int, str]] = {}
"""What words are looked for in, by id, with the version that it was made of."""


def _hay(task: Task) -> str:
    found = _HAY.get(task.id)
    if found is None or found[0] != task.version:
        words = "\n".join((task.name, task.user, *task.tags)).lower()
        found = _HAY[task.id] = (task.version, f"{words}\n#{task.id}#")
    return found[1]


def _anywhere(word: str) -> Match:
    number = f"#{word}#"
    return lambda task, now: word in (hay := _hay(task)) or number in hay


def _regex(pattern: str) -> Match:
    try:
        search = re.compile(pattern, re.IGNORECASE).search
    except re.error as error:
        raise FilterError(text("filter.regex", pattern=pattern, error=error)) from error
    return lambda task, now: search(task.name[:200]) is not None


def _yes(value: str) -> bool:
    if value.lower() not in ("true", "yes", "false", "no"):
        raise FilterError(text("filter.yes", value=value))
    return value.lower() in ("true", "yes")


def _near(word: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    if near:
        return text("filter.near", word=near[0])
    return text("filter.known", words=", ".join(known))

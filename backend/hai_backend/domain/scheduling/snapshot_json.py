"""The file format of snapshots: JSON with a format version, and one node, task or ending per line.

It contains only what the scheduler knows: no program, variable, token or complete task name. `anonymize` also replaces
users and names by pseudonyms.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from hai_backend.domain.json_form import from_json, invalid_value, to_json
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot

FORMAT = "hai.snapshot"
VERSION = 1
BEGIN = f'{{"format": "{FORMAT}", "version": '
"""Every snapshot begins with this text."""

_LISTS = ("nodes", "tasks", "endings", "quotas", "shares")  # lists with one item per line


def format_lines(snapshot: Snapshot) -> Iterator[str]:
    """Yield the text in parts. Equal snapshots have equal texts."""
    yield f"{BEGIN}{VERSION}"
    found = to_json(snapshot)
    for name in (field.name for field in fields(Snapshot)):
        if name in found:
            yield f",\n{json.dumps(name)}: "
            yield from _items(found[name]) if name in _LISTS else [json.dumps(found[name])]
    yield "}\n"


def _items(found: Iterable[Any]) -> Iterator[str]:
    yield "["
    between = "\n"
    for item in found:
        yield between + json.dumps(item)
        between = ",\n"
    yield "\n]"


def parse(text: str, where: str = "") -> Snapshot:
    """Parse a snapshot. Raises Invalid with the first error."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid_value(where, f"is not JSON: {error}") from error
    return from_object(found, where)


def from_object(found: Any, where: str = "") -> Snapshot:
    """Convert a snapshot that was parsed as JSON. Raises Invalid."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise invalid_value(where, f"is not a snapshot: its `format` is not {FORMAT!r}")
    if found.get("version") != VERSION:
        version = found.get("version")
        raise invalid_value(where, f"has version {version!r} of the format; known is {VERSION}")
    facts = {name: each for name, each in found.items() if name not in ("format", "version")}
    return from_json(Snapshot, facts, where)


def anonymize(snapshot: Snapshot) -> Snapshot:
    """Replace users by u1, u2, …, user groups by g1, g2, … and task names by x1, x2, …

    The pseudonyms sort like the names, so that the scheduler makes the same decisions. Reasons and labels of nodes are
    removed. Nodes, groups and zones keep their names.
    """
    all_tasks = [*snapshot.tasks, *(ending.task for ending in snapshot.endings)]
    users = {task.user for task in all_tasks} | {row.user for row in snapshot.quotas}
    members = {user for row in snapshot.shares for user in row.users}
    people = _pseudonyms("u", users | members | snapshot.inactive_users)
    teams = _pseudonyms("g", {row.name for row in snapshot.shares})
    names = _pseudonyms("x", {task.name for task in all_tasks})

    def anonymized(task: SchedTask) -> SchedTask:
        return replace(task, user=people[task.user], name=names[task.name])

    return replace(
        snapshot,
        nodes=tuple(replace(node, reason="", labels=()) for node in snapshot.nodes),
        tasks=tuple(anonymized(task) for task in snapshot.tasks),
        endings=tuple(replace(ending, task=anonymized(ending.task)) for ending in snapshot.endings),
        quotas=tuple(replace(row, user=people[row.user]) for row in snapshot.quotas),
        shares=tuple(
            replace(row, name=teams[row.name], users=frozenset(people[u] for u in row.users))
            for row in snapshot.shares
        ),
        inactive_users=frozenset(people[user] for user in snapshot.inactive_users),
    )


def _pseudonyms(letter: str, found: Iterable[str]) -> Mapping[str, str]:
    """Return pseudonyms of equal length that sort like the names. The empty name stays empty."""
    sorted_names = sorted(name for name in found if name)
    width = len(str(len(sorted_names)))
    return {"": "", **{name: f"{letter}{i:0{width}}" for i, name in enumerate(sorted_names, 1)}}

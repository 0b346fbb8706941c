"""A snapshot as a text that outlives this version: JSON with a format and its version, a node, task or ending a line.

It holds what the scheduler knows and nothing else: no program, no variable, no token, no whole name of a task. With
`anonymous` people and names of tasks get pseudonyms, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from hai_backend.domain.json_form import read, refused, written
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot

FORMAT = "hai.snapshot"
VERSION = 1
BEGIN = f'{{"format": "{FORMAT}", "version": '
"""How a text begins by which it can be told from others."""

_LONG = ("nodes", "tasks", "endings", "quotas", "shares")  # lists of which each item has a line


def lines(snapshot: Snapshot) -> Iterator[str]:
    """The text in parts, each with its newline. Equal snapshots make equal texts."""
    yield f"{BEGIN}{VERSION}"
    found = written(snapshot)
    for name in (field.name for field in fields(Snapshot)):
        if name in found:
            yield f",\n{json.dumps(name)}: "
            yield from _items(found[name]) if name in _LONG else [json.dumps(found[name])]
    yield "}\n"


def _items(found: Iterable[Any]) -> Iterator[str]:
    yield "["
    between = "\n"
    for item in found:
        yield between + json.dumps(item)
        between = ",\n"
    yield "\n]"


def parse(text: str, where: str = "") -> Snapshot:
    """The snapshot that was written. Raises Invalid with the first thing that is not as we write it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refused(where, f"is not JSON: {error}") from error
    return of_object(found, where)


def of_object(found: Any, where: str = "") -> Snapshot:
    """The same of what json.loads has made of it."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise refused(where, f"is not a snapshot: its `format` is not {FORMAT!r}")
    if found.get("version") != VERSION:
        version = found.get("version")
        raise refused(where, f"has version {version!r} of the format; known is {VERSION}")
    facts = {name: each for name, each in found.items() if name not in ("format", "version")}
    return read(Snapshot, facts, where)


def anonymous(snapshot: Snapshot) -> Snapshot:
    """People are u1, u2, …, user groups g1, g2, … and names of tasks x1, x2, …, numbered in their order, so that the
    scheduler decides alike.

    Reasons and labels that operators gave are left out. Nodes, groups and zones keep their names.
    """
    told = [*snapshot.tasks, *(ending.task for ending in snapshot.endings)]
    users = {task.user for task in told} | {row.user for row in snapshot.quotas}
    members = {user for row in snapshot.shares for user in row.users}
    people = _pseudonyms("u", users | members | snapshot.inactive_users)
    teams = _pseudonyms("g", {row.name for row in snapshot.shares})
    names = _pseudonyms("x", {task.name for task in told})

    def hidden(task: SchedTask) -> SchedTask:
        return replace(task, user=people[task.user], name=names[task.name])

    return replace(
        snapshot,
        nodes=tuple(replace(node, reason="", labels=()) for node in snapshot.nodes),
        tasks=tuple(hidden(task) for task in snapshot.tasks),
        endings=tuple(replace(ending, task=hidden(ending.task)) for ending in snapshot.endings),
        quotas=tuple(replace(row, user=people[row.user]) for row in snapshot.quotas),
        shares=tuple(
            replace(row, name=teams[row.name], users=frozenset(people[u] for u in row.users))
            for row in snapshot.shares
        ),
        inactive_users=frozenset(people[user] for user in snapshot.inactive_users),
    )


def _pseudonyms(letter: str, found: Iterable[str]) -> Mapping[str, str]:
    """Equally long, so that they sort as what they stand for; nothing stays nothing."""
    known = sorted(name for name in found if name)
    width = len(str(len(known)))
    return {"": "", **{name: f"{letter}{i:0{width}}" for i, name in enumerate(known, 1)}}

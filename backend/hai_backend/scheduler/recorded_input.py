"""The input of a pass as one value. The live loop makes it, the decision log stores it, and a replay applies it again.

A decision log is a text with one record per line: first the state at the beginning (policy and snapshot), then the
passes. Decisions depend on nothing else, so a replay must make the same decisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hai_backend.domain.json_form import dump_json, from_json, invalid_value, to_json
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling import snapshot_json
from hai_backend.domain.scheduling.plan import Plan
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, Snapshot
from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.policy.policy import Policy, parse, to_mapping
from hai_backend.scheduler.policy.rules import Rules

FORMAT = "hai.decisions"
VERSION = 1
BEGIN = f'{{"format": "{FORMAT}", "version": '
"""The first characters of a log, and of each of its files that can be read alone."""


@dataclass(frozen=True, slots=True)
class PassInput:
    """What has changed at `now`. None means that the rules or nodes have not changed."""

    now: float
    rules: Rules | None = None
    nodes: tuple[Node, ...] | None = None
    endings: tuple[Ending, ...] = ()
    tasks: tuple[SchedTask, ...] = ()
    gone: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """The state before the passes that follow."""

    policy: Policy
    snapshot: Snapshot
    release: str = ""  # the version of the software

    def cache(self) -> SchedulerCache:
        """Return a cache of the snapshot."""
        return SchedulerCache.from_snapshot(self.snapshot, self.policy)


@dataclass(frozen=True, slots=True)
class Pass:
    """The input and the plan of a pass. `shown` is the key of the input in the log."""

    shown: PassInput
    plan: Plan


def apply(cache: SchedulerCache, new: PassInput) -> Plan:
    """Update the cache with what has changed, and make a pass."""
    if new.rules is not None:
        cache.update_rules(new.rules)
    if new.nodes is not None:
        cache.update_nodes(new.nodes)
    cache.learn(new.endings)
    cache.update_tasks(new.tasks, new.gone, new.now)
    return cache.decide(new.now)


def begin_line(begin: Begin) -> str:
    """Return the first line of a log, with its newline."""
    snapshot = "".join(snapshot_json.format_lines(begin.snapshot)).replace("\n", "")
    policy = json.dumps(to_mapping(begin.policy))
    release = json.dumps(begin.release)
    return f'{BEGIN}{VERSION}, "release": {release}, "policy": {policy}, "snapshot": {snapshot}}}\n'


def pass_line(done: Pass) -> str:
    """Return the line of a pass, with its newline."""
    return dump_json(to_json(done)) + "\n"


def parse_line(line: str, where: str = "") -> Begin | Pass:
    """Return the record of a line. Raises Invalid."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise invalid_value(
            where, f"is not JSON, as each line of a log of decisions is: {error}"
        ) from error
    if isinstance(found, dict) and "format" in found:
        return _begin(found, where)
    return from_json(Pass, found, where)


def _begin(found: Mapping[str, Any], where: str) -> Begin:
    version = found.get("version")
    if found["format"] != FORMAT or version != VERSION:
        raise invalid_value(
            where, f"is {found['format']!r} {version!r}; known is {FORMAT!r} {VERSION}"
        )
    for name in ("policy", "snapshot"):
        if not isinstance(found.get(name), dict):
            raise invalid_value(f"{where}.{name}", "is missing")
    return Begin(
        parse(found["policy"], where),
        snapshot_json.from_object(found["snapshot"], where),
        str(found.get("release", "")),
    )

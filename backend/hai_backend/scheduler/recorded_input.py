"""What a board is shown before a pass, as one value: the live loop makes it, a log keeps it, a replay shows it again.

A log of passes is text, a line each: a beginning (policy, and a snapshot of what the board knows), then one pass after
the other. Nothing but these lines and this code decides, so that a replay must come to the same decisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hai_backend.domain.json_form import read, refused, text, written
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling import snapshot_json
from hai_backend.domain.scheduling.plan import Plan
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, Snapshot
from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.policy.policy import Policy, parse, to_mapping
from hai_backend.scheduler.policy.settings import Rules

FORMAT = "hai.decisions"
VERSION = 1
BEGIN = f'{{"format": "{FORMAT}", "version": '
"""How a log begins, and every part of it that stands by itself."""


@dataclass(frozen=True, slots=True)
class PassInput:
    """What is new at `now`; rules and nodes are None when they are as before."""

    now: float
    rules: Rules | None = None
    nodes: tuple[Node, ...] | None = None
    endings: tuple[Ending, ...] = ()
    tasks: tuple[SchedTask, ...] = ()
    gone: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """A board that has seen this snapshot makes the passes that follow."""

    policy: Policy
    snapshot: Snapshot
    release: str = ""  # of the software

    def board(self) -> SchedulerCache:
        """That board."""
        return SchedulerCache.of(self.snapshot, self.policy)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a board was shown, and what it decided then."""

    shown: PassInput
    plan: Plan


def show(board: SchedulerCache, shown: PassInput) -> Plan:
    """One pass over what is new."""
    if shown.rules is not None:
        board.see_rules(shown.rules)
    if shown.nodes is not None:
        board.see_nodes(shown.nodes)
    board.learn(shown.endings)
    board.see(shown.tasks, shown.gone, shown.now)
    return board.decide(shown.now)


def begin_line(begin: Begin) -> str:
    """The line of a log, with its newline."""
    snapshot = "".join(snapshot_json.lines(begin.snapshot)).replace("\n", "")
    policy = json.dumps(to_mapping(begin.policy))
    release = json.dumps(begin.release)
    return f'{BEGIN}{VERSION}, "release": {release}, "policy": {policy}, "snapshot": {snapshot}}}\n'


def pass_line(done: Pass) -> str:
    """The line of a log, with its newline."""
    return text(written(done)) + "\n"


def parse_line(line: str, where: str = "") -> Begin | Pass:
    """What a line of a log tells. Raises Invalid."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise refused(
            where, f"is not JSON, as each line of a log of decisions is: {error}"
        ) from error
    if isinstance(found, dict) and "format" in found:
        return _begin(found, where)
    return read(Pass, found, where)


def _begin(found: Mapping[str, Any], where: str) -> Begin:
    version = found.get("version")
    if found["format"] != FORMAT or version != VERSION:
        raise refused(where, f"is {found['format']!r} {version!r}; known is {FORMAT!r} {VERSION}")
    for name in ("policy", "snapshot"):
        if not isinstance(found.get(name), dict):
            raise refused(f"{where}.{name}", "is missing")
    return Begin(
        parse(found["policy"], where),
        snapshot_json.of_object(found["snapshot"], where),
        str(found.get("release", "")),
    )

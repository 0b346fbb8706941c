"""Previews what new settings of a group would change in the next pass, by making that pass with both settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hai_backend.domain.node import Group
from hai_backend.domain.scheduling.plan import Start, Suspend, Wait
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler.cache import schedule
from hai_backend.scheduler.explain.trial_pass import select_group
from hai_backend.scheduler.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Effect:
    """Decisions that only one of the two passes makes, in order of tasks."""

    starts: tuple[Start, ...] = ()  # only with the new settings
    delayed: tuple[Wait, ...] = ()  # would start with the current settings
    suspended: tuple[Suspend, ...] = ()  # only with the new settings
    spared: tuple[Suspend, ...] = ()  # only with the current settings
    moved: int = 0  # tasks that wait either way, at another position
    waiting: int = 0  # tasks that wait either way


def preview(snapshot: Snapshot, settings: Group, policy: Policy) -> Effect:
    """Return the effect of these settings on their group. This makes two passes over the group."""
    before = select_group(snapshot, settings.name)
    old = _decisions(before, settings.name, policy)
    changed = replace(before, groups={**before.groups, settings.name: settings})
    new = _decisions(changed, settings.name, policy)
    positions = [
        (old.waits[i].place, wait.place) for i, wait in new.waits.items() if i in old.waits
    ]
    return Effect(
        starts=tuple(start for i, start in new.starts.items() if i not in old.starts),
        delayed=tuple(wait for i, wait in new.waits.items() if i in old.starts),
        suspended=tuple(found for i, found in new.suspends.items() if i not in old.suspends),
        spared=tuple(found for i, found in old.suspends.items() if i not in new.suspends),
        moved=sum(was != is_now for was, is_now in positions),
        waiting=len(positions),
    )


@dataclass(frozen=True, slots=True)
class _Decisions:
    starts: Mapping[int, Start]
    waits: Mapping[int, Wait]
    suspends: Mapping[int, Suspend]


def _decisions(snapshot: Snapshot, group: str, policy: Policy) -> _Decisions:
    """Make a pass, and return the decisions about the tasks of a group."""
    in_group = {task.id for task in snapshot.tasks if task.group == group}
    decided = (d for d in schedule(snapshot, policy).decisions if d.task in in_group)
    decisions = sorted(decided, key=lambda d: d.task)
    return _Decisions(
        {d.task: d for d in decisions if isinstance(d, Start)},
        {d.task: d for d in decisions if isinstance(d, Wait)},
        {d.task: d for d in decisions if isinstance(d, Suspend)},
    )

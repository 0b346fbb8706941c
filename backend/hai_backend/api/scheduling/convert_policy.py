"""Converts scheduling policies to messages, and back to the names and values that scheduler.policy.policy reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hai.v1 import policy_pb2 as pb
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Start, Suspend, Wait
from hai_backend.domain.task import Task
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.policy.preview import Effect

_MAX_NAMED = 100  # tasks of each kind of effect
_LEVEL_FIELDS = frozenset(
    name
    for name in pb.SchedulingPolicy.DESCRIPTOR.fields_by_name
    if isinstance(getattr(Policy(), name), Priority)
)
NAMES: tuple[str, ...] = tuple(pb.SchedulingPolicy.DESCRIPTOR.fields_by_name)
"""The names of all settings."""

_LEVEL_NAMES: Mapping[int, str] = {level: level.name for level in Priority}

FindTask = Callable[[int], Task | None]


def policy_to_proto(values: Mapping[str, Any]) -> pb.SchedulingPolicy:
    """Convert valid settings. Settings that are left out stay unset."""
    message = pb.SchedulingPolicy()
    for name, value in values.items():
        if name == "demotion":
            message.demotion.CopyFrom(_demotions_to_proto(value))
        elif name == "ranking":
            message.ranking = pb.Ranking.Value(f"RANKING_{value.upper()}")
        else:
            setattr(message, name, Priority[value] if name in _LEVEL_FIELDS else value)
    return message


def _demotions_to_proto(table: Mapping[str, Mapping[str, Any]]) -> pb.Demotions:
    rows = (
        pb.Demotion(
            priority=Priority[level], to=Priority[row["to"]], after_seconds=row["after_seconds"]
        )
        for level, row in table.items()
    )
    return pb.Demotions(rows=rows)


def policy_from_proto(message: pb.SchedulingPolicy) -> dict[str, Any]:
    """Return the settings in a message, which are not validated yet."""
    return {field.name: _read_value(field.name, value) for field, value in message.ListFields()}


def _read_value(name: str, value: Any) -> Any:
    if isinstance(value, pb.Demotions):
        return {
            _level_name(row.priority): {
                "to": _level_name(row.to),
                "after_seconds": row.after_seconds,
            }
            for row in value.rows
        }
    if name == "ranking":
        names = {number: member for member, number in pb.Ranking.items()}
        return names.get(value, str(value)).removeprefix("RANKING_").lower()
    return _level_name(value) if name in _LEVEL_FIELDS else value


def _level_name(number: int) -> str:
    return _LEVEL_NAMES.get(number, str(number))


def effect_to_proto(effect: Effect, find_task: FindTask) -> pb.GroupEffect:
    """Convert the effect of a preview. `find_task` returns an unfinished task by its id."""
    return pb.GroupEffect(
        starts=_changes(effect.starts, find_task),
        delayed=_changes(effect.delayed, find_task),
        suspended=_changes(effect.suspended, find_task),
        spared=_changes(effect.spared, find_task),
        moved=effect.moved,
        waiting=effect.waiting,
    )


def _changes(decisions: Sequence[Start | Suspend | Wait], find_task: FindTask) -> pb.TaskChanges:
    return pb.TaskChanges(count=len(decisions), tasks=_first_changes(decisions, find_task))


def _first_changes(
    decisions: Sequence[Start | Suspend | Wait], find_task: FindTask
) -> Iterable[pb.TaskChange]:
    for decision in decisions[:_MAX_NAMED]:
        task = find_task(decision.task)
        yield pb.TaskChange(
            task_id=decision.task,
            task_name=task.spec.name if task else "",
            user=task.user if task else "",
            reason=decision.message if isinstance(decision, Wait) else decision.reason,
        )

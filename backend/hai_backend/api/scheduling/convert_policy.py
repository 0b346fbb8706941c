"""Scheduling policies as messages, and back to names and values as scheduler.policy.policy reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hai.v1 import policy_pb2 as pb
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Start, Suspend, Wait
from hai_backend.domain.task import Task
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.policy.preview import Effect

_MOST = 100  # tasks named of each kind
_LEVELS = frozenset(
    name
    for name in pb.SchedulingPolicy.DESCRIPTOR.fields_by_name
    if isinstance(getattr(Policy(), name), Priority)
)
NAMES: tuple[str, ...] = tuple(pb.SchedulingPolicy.DESCRIPTOR.fields_by_name)
"""Every setting."""

_NAMES_OF: Mapping[int, str] = {level: level.name for level in Priority}

Named = Callable[[int], Task | None]


def policy_to_proto(values: Mapping[str, Any]) -> pb.SchedulingPolicy:
    """Checked settings; those that are left out stay unset."""
    message = pb.SchedulingPolicy()
    for name, value in values.items():
        if name == "demotion":
            message.demotion.CopyFrom(_demotions(value))
        elif name == "ranking":
            message.ranking = pb.Ranking.Value(f"RANKING_{value.upper()}")
        else:
            setattr(message, name, Priority[value] if name in _LEVELS else value)
    return message


def _demotions(table: Mapping[str, Mapping[str, Any]]) -> pb.Demotions:
    rows = (
        pb.Demotion(
            priority=Priority[level], to=Priority[row["to"]], after_seconds=row["after_seconds"]
        )
        for level, row in table.items()
    )
    return pb.Demotions(rows=rows)


def policy_from_proto(message: pb.SchedulingPolicy) -> dict[str, Any]:
    """The settings that were sent, not checked."""
    return {field.name: _plain(field.name, value) for field, value in message.ListFields()}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, pb.Demotions):
        return {
            _level(row.priority): {"to": _level(row.to), "after_seconds": row.after_seconds}
            for row in value.rows
        }
    if name == "ranking":
        known = {number: word for word, number in pb.Ranking.items()}
        return known.get(value, str(value)).removeprefix("RANKING_").lower()
    return _level(value) if name in _LEVELS else value


def _level(number: int) -> str:
    return _NAMES_OF.get(number, str(number))


def effect_to_proto(effect: Effect, named: Named) -> pb.GroupEffect:
    """The effect of a preview; `named` knows the unfinished tasks."""
    return pb.GroupEffect(
        starts=_changes(effect.starts, named),
        delayed=_changes(effect.delayed, named),
        suspended=_changes(effect.suspended, named),
        spared=_changes(effect.spared, named),
        moved=effect.moved,
        waiting=effect.waiting,
    )


def _changes(decisions: Sequence[Start | Suspend | Wait], named: Named) -> pb.TaskChanges:
    return pb.TaskChanges(count=len(decisions), tasks=_first(decisions, named))


def _first(decisions: Sequence[Start | Suspend | Wait], named: Named) -> Iterable[pb.TaskChange]:
    for decision in decisions[:_MOST]:
        task = named(decision.task)
        yield pb.TaskChange(
            task_id=decision.task,
            task_name=task.spec.name if task else "",
            user=task.user if task else "",
            reason=decision.message if isinstance(decision, Wait) else decision.reason,
        )

"""The scheduling policy of a node group, as operators set it: one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.scheduler.policy.parse import (
    Reader,
    abbreviated,
    choice_of,
    flag,
    integer,
    level,
    number,
    read_table,
)


class Ranking(StrEnum):
    """Decides which tasks of one level come first."""

    LEARNED = (
        "learned"  # highest probability of ending per node-second, by history (queue/history.py)
    )
    ATTAINED = "attained"  # least attained service in node-seconds
    SUBMITTED = "submitted"  # first submission, or the longest wait if slices are on


@dataclass(frozen=True, slots=True)
class Demotion:
    """After `after_seconds`, a run counts as level `to`. The next run of the task has the task's own level again."""

    to: Priority
    after_seconds: float


_DEMOTION: Mapping[Priority, Demotion] = MappingProxyType(
    {Priority.ABOVE_NORMAL: Demotion(Priority.NORMAL, after_seconds=1800.0)}
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a group.

    The default levels and demotion are those of HAI's manual; other defaults did best on real traces (docs:
    scheduling).
    """

    ranking: Ranking = Ranking.LEARNED
    demotion: Mapping[Priority, Demotion] = field(default_factory=lambda: _DEMOTION)

    # Within a level, a queued task may suspend a run with a lower merit. The merit of a run is multiplied by `staying`,
    # and once more while it is in its slice. The merit of the first task of a user without nodes is multiplied by
    # `staying` for each slice that the task has waited, so that equal tasks take turns. A slice is so long that
    # suspending and starting again cost at most `overhead_share` of it, and never shorter than `minimum_seconds`.
    time_slices: bool = True
    staying: float = 1.6
    overhead_share: float = 0.007

    # A run is suspended for an equal level only after `minimum_seconds`, and `minimum_seconds` more for each suspension
    # of the last day. Each of these suspensions for a higher level protects the run for one more slice, from all levels
    # below `urgent`. After `daily_suspensions` in a day, only tasks at `urgent` or above suspend it. A run whose last
    # runs were suspended before they saved is protected from all levels for `minimum_seconds`, or until it has saved.
    minimum_seconds: float = 900.0
    urgent: Priority = Priority.HIGH
    daily_suspensions: int = 24

    # A task that has waited for `patience_seconds` is lifted: it comes first at level `lifted_to`, or at its own level
    # if that is higher.
    patience_seconds: float = 86_400.0
    lifted_to: Priority = Priority.NORMAL

    # The quota in nodes of a user without a row for a group and level; None means unlimited.
    default_quota: int | None = None

    # AUTO is resolved to the highest level for which the user has a quota row with room. It may be resolved to this
    # level without a row, so that tasks of unlimited users do not all run at EXTREME_HIGH.
    auto_level_when_unlimited: Priority = Priority.NORMAL

    # What a suspension costs per node besides lost work: leaving, starting again, loading. Used for tasks for which
    # this was never measured.
    restart_seconds: float = 65.0

    # How often endings change the learned ranking. Between two changes the positions in the queue are stable.
    relearn_seconds: float = 1800.0

    # How many of the tasks ahead are listed for a queued task.
    ahead_limit: int = 20


_UNLIMITED = -1
_SECONDS = number(0.0, 1e9)


def _quota(written: Any) -> int | None:
    nodes: int = integer(_UNLIMITED, 1_000_000)(written)
    return None if nodes == _UNLIMITED else nodes


def _level_below(limit: Priority) -> Reader:
    def read(written: Any) -> Priority:
        if (found := level(written)) >= limit:
            raise ValueError(f"must be a level below {limit.name}, not {abbreviated(written)}")
        return found

    return read


def _demotion_of(source: Priority) -> Reader:
    readers = {"to": _level_below(source), "after_seconds": _SECONDS}
    return lambda written: Demotion(**read_table(written, readers, required=readers))


def _demotions(written: Any) -> Mapping[Priority, Demotion]:
    found = read_table(written, {source.name: _demotion_of(source) for source in LEVELS})
    return MappingProxyType({Priority[name]: demotion for name, demotion in found.items()})


_READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "ranking": choice_of(Ranking),
        "demotion": _demotions,
        "time_slices": flag,
        "staying": number(1.0, 1000.0),
        "overhead_share": number(1e-6, 0.999),
        "minimum_seconds": _SECONDS,
        "urgent": level,
        "daily_suspensions": integer(1, 1_000_000),
        "patience_seconds": _SECONDS,
        "lifted_to": level,
        "default_quota": _quota,
        "auto_level_when_unlimited": level,
        "restart_seconds": _SECONDS,
        "relearn_seconds": _SECONDS,
        "ahead_limit": integer(0, 1000),
    }
)


def parse(mapping: Mapping[str, Any], where: str = "", base: Policy | None = None) -> Policy:
    """Return the policy of these settings. Settings that are missing are taken from `base`, or from the defaults.

    Raises Invalid with all violations, whose fields begin with `where` (a file). A quota of -1 nodes means unlimited.
    """
    before = f"{where}: " if where else ""
    try:
        return replace(base or Policy(), **read_table(mapping, _READERS))
    except ValueError as error:
        raise Invalid((Violation(where, str(error)),), reason="BAD_POLICY") from error
    except Invalid as error:
        found = (Violation(before + v.field, v.message) for v in error.violations)
        raise Invalid(tuple(found), reason=error.reason) from None


def to_mapping(policy: Policy) -> dict[str, Any]:
    """Return all settings in JSON form. `parse` converts them back to an equal policy."""
    return {f.name: _written(getattr(policy, f.name)) for f in fields(policy)}


def _written(value: Any) -> Any:
    if value is None:
        return _UNLIMITED
    if isinstance(value, Priority):
        return value.name
    if isinstance(value, Demotion):
        return {"to": value.to.name, "after_seconds": value.after_seconds}
    if isinstance(value, Mapping):
        return {source.name: _written(demotion) for source, demotion in value.items()}
    return str(value) if isinstance(value, Ranking) else value

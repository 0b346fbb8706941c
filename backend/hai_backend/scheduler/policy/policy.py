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
    table,
)


class Ranking(StrEnum):
    """Which tasks of one level come first."""

    LEARNED = "learned"  # best odds of ending per node-second, as history tells (queue/history.py)
    ATTAINED = "attained"  # least attained service in node-seconds
    SUBMITTED = "submitted"  # first submission; with slices: the longest wait


@dataclass(frozen=True, slots=True)
class Demotion:
    """After `after_seconds` of one run, the run counts as `to`; the task's own level returns with its next run."""

    to: Priority
    after_seconds: float


_DEMOTION: Mapping[Priority, Demotion] = MappingProxyType(
    {Priority.ABOVE_NORMAL: Demotion(Priority.NORMAL, after_seconds=1800.0)}
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Levels and demotion are as in HAI's manual; other defaults did best on real traces (docs: scheduling)."""

    ranking: Ranking = Ranking.LEARNED
    demotion: Mapping[Priority, Demotion] = field(default_factory=lambda: _DEMOTION)

    # Within a level a waiting task may take the nodes of a run that ranks lower. A run ranks `staying` times as high as
    # its merit, and as much again inside its slice; so does, with each slice that it waits for, the first task of a
    # user who holds nothing: equals take turns. A slice lasts so long that suspending and starting again cost at most
    # `overhead_share` of it, and never less than `minimum_seconds`.
    time_slices: bool = True
    staying: float = 1.6
    overhead_share: float = 0.007

    # No run is suspended for an equal level before it has run for `minimum_seconds`, and so much again for each
    # suspension of the last day. For each of these that was for a higher level, the run is protected for a whole slice
    # more, from all levels but `urgent` ones. At `daily_suspensions` in a day, only urgent ones suspend it.
    minimum_seconds: float = 900.0
    urgent: Priority = Priority.HIGH
    daily_suspensions: int = 24

    # A task that has waited so long counts as `lifted_to` (or as its own level, if that is higher) and comes first
    # there.
    patience_seconds: float = 86_400.0
    lifted_to: Priority = Priority.NORMAL

    # Quota in nodes for a user without a row for (group, level); None: unlimited.
    default_quota: int | None = None

    # AUTO takes the highest level for which the user has a quota row with room. This level is the one that it may
    # use without a row, so that unlimited users do not all run at EXTREME_HIGH.
    auto_level_when_unlimited: Priority = Priority.NORMAL

    # What a suspension costs a node beside the work since its checkpoint: leaving, starting again, loading.
    # Holds for tasks of which it was never measured.
    restart_seconds: float = 65.0

    # Endings change the learned ranking so often; in between, places in the queue are stable.
    relearn_seconds: float = 1800.0

    # How many of the tasks before it are listed for a waiting task.
    ahead_limit: int = 20


_UNLIMITED = -1
_SECONDS = number(0.0, 1e9)


def _quota(written: Any) -> int | None:
    nodes: int = integer(_UNLIMITED, 1_000_000)(written)
    return None if nodes == _UNLIMITED else nodes


def _lower(than: Priority) -> Reader:
    def read(written: Any) -> Priority:
        if (found := level(written)) >= than:
            raise ValueError(f"must be a level below {than.name}, not {abbreviated(written)}")
        return found

    return read


def _demotion_of(source: Priority) -> Reader:
    readers = {"to": _lower(source), "after_seconds": _SECONDS}
    return lambda written: Demotion(**table(written, readers, needed=readers))


def _demotions(written: Any) -> Mapping[Priority, Demotion]:
    found = table(written, {source.name: _demotion_of(source) for source in LEVELS})
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
    """The policy of these settings; settings that are missing are as in `base`, or have their defaults.

    Raises Invalid with every violation; `where` (a file) begins their fields. -1 nodes of quota are unlimited.
    """
    before = f"{where}: " if where else ""
    try:
        return replace(base or Policy(), **table(mapping, _READERS))
    except ValueError as error:
        raise Invalid((Violation(where, str(error)),), reason="BAD_POLICY") from error
    except Invalid as error:
        found = (Violation(before + v.field, v.message) for v in error.violations)
        raise Invalid(tuple(found), reason=error.reason) from None


def to_mapping(policy: Policy) -> dict[str, Any]:
    """Every setting in JSON form: `parse` returns the same policy."""
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

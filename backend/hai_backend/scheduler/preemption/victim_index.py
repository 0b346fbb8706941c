"""The runs of a group that may be asked to leave, by level and rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from hai_backend.scheduler.capacity.slots import Holder
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.queue import Waiting
from hai_backend.scheduler.queue.rating import Guard, Rating


class VictimIndex:
    """The runs of a group by level and rank."""

    def __init__(self) -> None:
        self._steps: dict[int, list[tuple[float, int, Holder]]] = {}
        self._nodes: dict[tuple[int, Guard], int] = {}

    def add(self, holder: Holder) -> None:
        """A run that may be asked to leave."""
        worth = worth_of(holder)
        insort(self._steps.setdefault(worth.level, []), (worth.merit, holder.task.id, holder))
        self._count(holder, len(holder.spots))

    def remove(self, holder: Holder) -> None:
        """Forget a run; call it before its worth or its nodes change."""
        worth = worth_of(holder)
        step = self._steps[worth.level]
        del step[bisect_left(step, (worth.merit, holder.task.id))]
        self._count(holder, -len(holder.spots))

    def _count(self, holder: Holder, nodes: int) -> None:
        key = (worth_of(holder).level, worth_of(holder).guard)
        self._nodes[key] = self._nodes.get(key, 0) + nodes

    def might_free(self, waiting: Waiting, policy: Policy, enough: int, apart: bool) -> bool:
        """A quick answer: False when the runs that may be asked to leave hold fewer than `enough` nodes.

        `apart`: where the group is divided, any equal may have to leave.
        """
        top = Guard.ALL if waiting.level >= policy.urgent else Guard.EQUALS
        nodes = sum(
            n for (lv, guard), n in self._nodes.items() if lv < waiting.level and guard <= top
        )
        equals = policy.time_slices or apart
        if not equals or nodes + self._nodes.get((waiting.level, Guard.NONE), 0) < enough:
            return nodes >= enough
        for merit, _, holder in self._steps.get(waiting.level, ()):
            if nodes >= enough or (merit >= waiting.merit and not apart):
                break
            nodes += len(holder.spots) if worth_of(holder).guard is Guard.NONE else 0
        return nodes >= enough

    def below(self, waiting: Waiting, apart: bool) -> Iterator[tuple[int, Iterator[Holder]]]:
        """The runs of each lower level, lowest first; then equals that rank below it, or all of them (`apart`)."""
        for level in sorted(level for level in self._steps if level <= waiting.level):
            step = self._steps[level]
            all_of_them = level < waiting.level or apart
            end = len(step) if all_of_them else bisect_left(step, (waiting.merit,))
            yield level, (holder for _, _, holder in step[:end])


def worth_of(holder: Holder) -> Rating:
    """What a run on a ladder is worth."""
    assert holder.worth is not None  # those without one are never put on a ladder
    return holder.worth

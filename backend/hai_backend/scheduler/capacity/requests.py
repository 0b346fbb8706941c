"""What the tasks of one group ask for of its nodes, and what that weighs."""

from __future__ import annotations

from collections.abc import Iterable

from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.domain.spec import TaskType
from hai_backend.scheduler.capacity.resources import Amount, ask_of, size_of
from hai_backend.scheduler.capacity.slots import Need
from hai_backend.scheduler.quota import units_of


class Requests:
    """Equal needs are one value."""

    def __init__(self, packed: bool, nodes: Iterable[Node]) -> None:
        self._packed = packed
        self._known: dict[object, Need] = {}
        sizes = zip((0, 0, 0), *map(size_of, nodes), strict=True)
        self.largest: Amount = tuple(map(max, sizes))

    def of(self, task: SchedTask) -> Need:
        """What the task asks for; equal for equal tasks."""
        ask = self.ask(task)
        spread = ask is not None and task.task_type is TaskType.JUPYTER
        shape = (task.node_count, ask, task.zone, task.assigned_nodes, spread)
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = Need(
                count=task.node_count,
                whole=ask is None,
                ask=ask or (0, 0, 0),
                zone=task.zone,
                only=task.assigned_nodes,
                units=self.units(task.node_count, ask),
                spread=spread,
            )
        return found

    def ask(self, task: SchedTask) -> Amount | None:
        """What a rank takes of a node; None: all of it."""
        return ask_of(task.gpu, task.cpu, task.memory, packed=self._packed)

    def units(self, ranks: int, ask: Amount | None) -> int:
        """What so many ranks weigh against a quota."""
        return units_of(ranks, ask, self.largest)

"""Where the runs of one plan really go: nodes are counted again with what is on them now, and GPUs are chosen.

A plan is computed while tasks change, so it may be late. The sums are those of the scheduler
(scheduler.capacity.resources). A Binder is good for one plan and counts each start that it lets pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hai_backend.domain.node import Group, Node
from hai_backend.domain.task import Rank, Task, holders
from hai_backend.scheduler.capacity.resources import (
    Resources,
    covers,
    minus,
    requested_resources,
    size_of,
)

Gpus = tuple[int, ...]


def gpus_of(task: Task, rank: Rank, node: Node | None) -> Gpus:
    """The GPUs of a rank, counted within its node.

    A rank that was placed before indices were stored has the first ones, as it was started with.
    """
    resource = task.spec.resource
    if rank.gpus or (not resource.gpu and (resource.cpu or resource.memory)):
        return rank.gpus
    return tuple(range(resource.gpu or (node.gpus if node else 0)))


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of a node."""

    free: Resources
    gpus: Gpus  # in ascending order

    def less(self, amount: Resources, gpus: Collection[int]) -> Room:
        """The room when a rank has taken its part."""
        return Room(minus(self.free, amount), tuple(i for i in self.gpus if i not in gpus))


class Occupants:
    """Which tasks are on which node; kept up to date change by change."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._names: dict[int, frozenset[str]] = {}  # the nodes of each task
        self._on: dict[str, set[int]] = {}

    def note(self, task: Task) -> None:
        """A task is new, or has changed."""
        before, names = self._names.pop(task.id, frozenset()), _nodes_of(task)
        self._tasks.pop(task.id, None)
        if names:
            self._tasks[task.id], self._names[task.id] = task, names
        for name in before - names:
            self._on[name].discard(task.id)
        for name in names - before:
            self._on.setdefault(name, set()).add(task.id)

    def on(self, names: Iterable[str]) -> list[Task]:
        """Everybody who holds one of these nodes, by id."""
        ids = {task for name in names for task in self._on.get(name, ())}
        return [self._tasks[task] for task in sorted(ids)]


def _nodes_of(task: Task) -> frozenset[str]:
    return frozenset(rank.node for _, _, rank in holders([task]))


class Binder:
    """The nodes that a plan wants to start runs on."""

    def __init__(
        self, wanted: Collection[str], nodes: Mapping[str, Node], groups: Mapping[str, Group]
    ) -> None:
        usable = {name: nodes[name] for name in wanted if name in nodes and nodes[name].usable}
        self._nodes = usable
        self._groups = groups
        self._rooms = {n.name: Room(size_of(n), tuple(range(n.gpus))) for n in usable.values()}

    def hold(self, tasks: Iterable[Task]) -> None:
        """Count everybody who is there."""
        for task, _, rank in holders(tasks):
            node = self._nodes.get(rank.node)
            if node is not None:
                taken = gpus_of(task, rank, node)
                self._rooms[node.name] = self._rooms[node.name].less(self._part(task, node), taken)

    def start(self, task: Task, names: tuple[str, ...]) -> tuple[Gpus, ...] | None:
        """Book a run: the GPUs of each rank, lowest free first; None when it does not fit any more."""
        rooms, chosen = dict[str, Room](), []
        for name in names:
            node = self._nodes.get(name)
            if node is None:
                return None
            room, part = rooms.get(name, self._rooms[name]), self._part(task, node)
            gpus = self._choose(task, node, room)
            if gpus is None or not covers(room.free, part):
                return None
            rooms[name] = room.less(part, gpus)
            chosen.append(gpus)
        self._rooms.update(rooms)
        return tuple(chosen)

    def _choose(self, task: Task, node: Node, room: Room) -> Gpus | None:
        count = task.spec.resource.gpu if self._ask(task) else node.gpus
        return room.gpus[:count] if len(room.gpus) >= count else None

    def _part(self, task: Task, node: Node) -> Resources:
        return self._ask(task) or size_of(node)

    def _ask(self, task: Task) -> Resources | None:
        resource = task.spec.resource
        packed = self._groups.get(resource.group, Group(resource.group)).packed
        return requested_resources(resource.gpu, resource.cpu, resource.memory, packed=packed)

"""The scheduler's memory between passes: told of changes, it looks again only at groups in which something changed.

`see` takes in what is new; `decide` passes over the changed groups and answers with what should start, leave or stop.
A fresh board that is shown a whole snapshot decides exactly as one that has followed every change.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import TypeVar

from hai_backend.domain.node import Group as Settings
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.plan import Decision, Plan, Wait
from hai_backend.domain.scheduling.snapshot import (
    Ending,
    QuotaRow,
    SchedTask,
    ShareRow,
    Snapshot,
    Standing,
)
from hai_backend.scheduler.admission import Admission
from hai_backend.scheduler.capacity.slots import Holder, Slot
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.explain import reasons
from hai_backend.scheduler.group_links import GroupLinks
from hai_backend.scheduler.group_state import ALIKE, GroupState
from hai_backend.scheduler.policy.group_policy import in_force
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.policy.settings import Rules
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.rating import like
from hai_backend.scheduler.quota import Quotas
from hai_backend.scheduler.shares import Shares

_ENDINGS = 20_000  # that a snapshot tells of


class SchedulerCache:
    """Not to be used by two threads at once."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tasks: dict[int, SchedTask] = {}
        self._nodes: dict[str, Node] = {}
        self._rules = Rules()
        self._groups: dict[str, GroupState] = {}
        self._histories: dict[str, History] = {}
        self._endings: deque[Ending] = deque(maxlen=_ENDINGS)
        self._cycles: dict[str, Cycle] = {}
        self._stale: dict[str, None] = {}  # groups to be built anew
        self._ties = GroupLinks()
        self._twins: list[SchedTask] = []  # holders whose id another task has too
        self._admission = Admission()
        self._now = -inf

    @staticmethod
    def of(snapshot: Snapshot, policy: Policy) -> SchedulerCache:
        """A board that has seen a whole snapshot."""
        board = SchedulerCache(policy)
        board.see_rules(Rules.of(snapshot))
        board.see_nodes(snapshot.nodes)
        board.learn(snapshot.endings)
        tasks = snapshot.tasks
        if twice := _repeated([task.id for task in tasks]):
            board._see_twins(task for task in tasks if task.id in twice)
            tasks = tuple(task for task in tasks if task.id not in twice)
        board.see(tasks, (), snapshot.now)
        return board

    def see_rules(self, rules: Rules) -> None:
        """All settings as they are now; where they differ from before, groups are built anew."""
        if rules.inactive_users != self._rules.inactive_users:
            self._stale.update(dict.fromkeys(self._groups))
        self._stale.update(dict.fromkeys(rules.differ(self._rules)))
        self._rules = rules
        self._admission.inactive_users = rules.inactive_users

    def see_nodes(self, nodes: Iterable[Node]) -> None:
        """All nodes as they are now. Of two with one name nobody knows which is meant: neither counts."""
        found = list(nodes)
        twice = _repeated([node.name for node in found])
        now = {node.name: node for node in found if node.name not in twice}
        before, self._nodes = self._nodes, now
        for name in before.keys() - now.keys():
            self._stale[before[name].group] = None
        turned = []
        for node in now.values():
            old = before.get(node.name)
            if old is node:
                continue
            if old is None or _shape(old) != _shape(node):
                self._stale.update(dict.fromkeys([node.group, *([old.group] if old else [])]))
            elif old.usable != node.usable:
                turned.append(node)
        self._turn([node for node in turned if node.group not in self._stale])

    def _turn(self, nodes: list[Node]) -> None:
        """Open or close them. Half the cluster may turn at once, so who is on which is asked only once."""
        groups = {name: self._edit(name) for name in sorted({node.group for node in nodes})}
        on = self._holders() if nodes else {}
        for node in nodes:
            here = on.get(node.name, [])
            if any(holder.task.group != node.group for holder in here):
                self._stale[node.group] = None
            elif node.group in self._stale:
                continue
            elif node.usable:
                groups[node.group].open(node, here)
            else:
                groups[node.group].close(node)

    def _holders(self) -> dict[str, list[Holder]]:
        on: dict[str, list[Holder]] = {}
        for group in self._groups.values():
            for holder in group.holders.values():
                for placed in holder.task.placed:
                    on.setdefault(placed, []).append(holder)
        return on

    def see(self, tasks: Iterable[SchedTask], gone: Iterable[int], now: float) -> None:
        """Unfinished tasks that are new or have changed, and those that have finished, whatever was said of them."""
        self._now = now
        known, stale = self._tasks, self._stale
        for task in tasks:
            if task.id in known:
                self._drop(task.id)
            known[task.id] = task
            if task.group in stale:
                continue
            if task.group in self._groups:
                self._enter(task)
            else:
                stale[task.group] = None
        for number in gone:
            self._drop(number)

    def learn(self, endings: Iterable[Ending]) -> None:
        """Tasks have ended by themselves after so long."""
        for ending in endings:
            history = self._histories.setdefault(ending.task.group, History())
            if ending.seconds >= 0:
                history.learn(like(ending.task), ending.seconds)
                self._endings.append(ending)

    def recall(self, histories: Mapping[str, History]) -> None:
        """Know of these groups what another board has learned. To be called before anything is seen."""
        self._histories.update(histories)

    def _drop(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is None:
            return
        self._admission.forget(number)
        tied = self._ties.untie(task)
        if not tied.isdisjoint(self._stale):
            self._stale.update(dict.fromkeys(tied))
            return
        for group in tied:
            self._edit(group).changed = True
        self._groups[task.group].exit(number)

    def _enter(self, task: SchedTask) -> None:
        for group in self._ties.tie(task, self._nodes) - self._stale.keys():
            self._edit(group).changed = True
        self._admit(task)

    def _admit(self, task: SchedTask) -> None:
        if task.standing is Standing.QUEUED and not self._admission.competes(task):
            return
        if task.standing is Standing.RUNNING and self._admission.stopped(task):
            task = replace(task, standing=Standing.LEAVING, leaves_free=True)
        self._edit(task.group).enter(task, self._now)

    def _see_twins(self, tasks: Iterable[SchedTask]) -> None:
        for task in tasks:
            if task.standing is Standing.QUEUED:
                self._admission.refuse(task.id, "two tasks have this id")
            else:
                self._twins.append(replace(task, standing=Standing.LEAVING, leaves_free=False))

    def _edit(self, name: str) -> GroupState:
        """The group, as it was before the last pass set nodes aside."""
        seating = self._cycles.pop(name, None)
        if seating is not None:
            seating.undo()
        return self._groups[name]

    def _rebuild(self) -> None:
        """Build stale groups anew, all empty ones first: a run may hold nodes that have moved to another group."""
        if not self._stale:
            return
        self._ties.renew(self._tasks.values(), self._nodes)
        names = sorted(self._ties.connected(self._stale))
        nodes = _by_group(self._nodes.values(), names)
        quotas = _by_group(self._rules.quotas, names)
        shares = _by_group(self._rules.shares, names)
        for name in names:
            if name in self._groups:
                self._edit(name)
            self._groups[name] = self._empty(name, nodes[name], quotas[name], shares[name])
        self._stale.clear()
        self._fill(names)
        for twin in self._twins:
            if twin.group in names:
                self._groups[twin.group].keep(twin)

    def _fill(self, names: list[str]) -> None:
        """In the order in which tasks came, as they lie in memory: group by group, reading them takes twice as long."""
        queued: dict[str, dict[object, list[SchedTask]]] = {name: {} for name in names}
        competes = self._admission.competes
        for task in self._tasks.values():
            if (lots := queued.get(task.group)) is None:
                continue
            if task.standing is not Standing.QUEUED:
                self._admit(task)
            elif competes(task):
                lots.setdefault(ALIKE(task), []).append(task)
        for name, lots in queued.items():
            self._groups[name].fill(lots.values(), self._now)

    def _empty(
        self, name: str, nodes: list[Node], quotas: list[QuotaRow], shares: list[ShareRow]
    ) -> GroupState:
        known = self._rules.groups
        settings = known.get(name, Settings(name))
        policy = in_force(settings, self._policy)
        return GroupState(
            name,
            policy,
            settings.packed,
            bool(nodes) or name in known,
            {node.name: node for node in nodes},
            Quotas(quotas, policy),
            Shares(shares),
            self._histories.setdefault(name, History()),
            self._spot,
        )

    def _spot(self, name: str) -> Slot | None:
        node = self._nodes.get(name)
        group = None if node is None else self._groups.get(node.group)
        return None if group is None else group.pool.spots.get(name)

    def snapshot(self) -> Snapshot:
        """Everything that the board was shown, as of its last pass."""
        return Snapshot(
            now=self._now,
            nodes=tuple(self._nodes.values()),
            tasks=tuple(self._tasks.values()),
            groups=self._rules.groups,
            quotas=self._rules.quotas,
            inactive_users=self._rules.inactive_users,
            shares=self._rules.shares,
            endings=tuple(self._endings),
        )

    def decide(self, now: float) -> Plan:
        """Pass over every group in which something has changed, or time has come. Deterministic and total."""
        self._now = now
        self._rebuild()
        stops = self._admission.stops
        decisions: list[Decision] = [stops[number] for number in sorted(stops)]
        due = (
            n for n, group in self._groups.items() if group.changed or group.alarms.next() <= now
        )
        for group in [self._edit(name) for name in sorted(self._ties.connected(due))]:
            decisions += self._pass(group)
        return Plan(0, tuple(decisions), self._wake_at())

    def _pass(self, group: GroupState) -> list[Decision]:
        seating = self._cycles[group.name] = Cycle(group, self._now)
        seating.run()
        group.changed = bool(seating.decisions)  # they may be refused: look again
        return seating.decisions

    def _wake_at(self) -> float | None:
        waiting = [g for g in self._groups.values() if g.waiting or g.aside]
        return min((g.alarms.next() for g in waiting if g.alarms.next() < inf), default=None)

    def waits(self, group: str = "") -> Iterator[Wait]:
        """Why each task waits that the last pass left in the queue: bad rows first, then by group in order.

        `group`: only of that one.
        """
        refused = self._admission.refused
        yield from (refused[n] for n in sorted(refused) if not group or self._is_in(n, group))
        for name in sorted(self._cycles.keys() & {group} if group else self._cycles):
            yield from self._cycles[name].answers().values()

    def _is_in(self, number: int, group: str) -> bool:
        task = self._tasks.get(number)
        return task is not None and task.group == group

    def seating(self, number: int) -> Cycle | None:
        """The last pass over the group of a task; None: there was none since something was changed."""
        task = self._tasks.get(number)
        return None if task is None else self._cycles.get(task.group)

    def wait(self, number: int) -> Wait | None:
        """Why one task waits, without its place; None: it does not, or no pass has seen it."""
        task = self._tasks.get(number)
        if (refused := self._admission.refused.get(number)) is not None:
            return refused
        if task is None or task.group not in self._cycles:
            return None
        return reasons.brief(self._cycles[task.group], number)


def _repeated(keys: Collection[Hashable]) -> set[Hashable]:
    if len(set(keys)) == len(keys):
        return set()
    return {key for key, number in Counter(keys).items() if number > 1}


_Row = TypeVar("_Row", Node, QuotaRow, ShareRow)


def _by_group(rows: Iterable[_Row], names: Iterable[str]) -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {name: [] for name in names}
    for row in rows:
        if row.group in found:
            found[row.group].append(row)
    return found


def _shape(node: Node) -> tuple[object, ...]:
    """What of a node, when it changes, changes what its group is."""
    size = (node.gpus, node.cpus, node.memory_bytes)
    return (node.group, node.zone, node.topology, size)

"""What is known of each rank, and what follows from news of its pod or its node. Pure: time is an argument.

A rank is there from the moment it is to be made until nothing of it can run any more. `Say`, `End` and `Clean` are what
the launcher has to do; every one of them may be done twice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hai_backend.launch.base import (
    LauncherEvent,
    LaunchFailed,
    RankGone,
    RankKey,
    RankLeaving,
)
from hai_backend.launch.kubernetes.causes import Cause, Fault
from hai_backend.launch.kubernetes.nodes import Nodes, Patience
from hai_backend.launch.kubernetes.pods import PodSeen
from hai_backend.watch.nodes import NodeSeen

Run = tuple[int, int]  # task, number
_FORCE_AGAIN = 10.0


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the server."""

    event: LauncherEvent


@dataclass(frozen=True, slots=True)
class End:
    """Delete the pod. `force`: its node is known to be dead, so nobody would confirm it."""

    key: RankKey
    uid: str = ""  # empty: nobody has seen it
    force: bool = False
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class Clean:
    """The last rank is gone: delete the owner of the run's objects."""

    run: Run


Do = Say | End | Clean


@dataclass(slots=True)
class _Rank:
    key: RankKey
    node: str
    uid: str = ""
    killed: bool = False
    leaving: bool = False
    failure: LaunchFailed | None = None
    trouble: Cause | None = None
    troubled_at: float = 0.0
    placed: bool = False  # the node has made room for it: warnings from before are settled
    ran: bool = False
    over_at: float | None = None  # nothing of it is to be seen
    vanished: bool = False  # and no kubelet said that it has ended: somebody deleted it by force
    why: str = ""
    forced_at: float = -math.inf


class Ranks:
    """The ranks of all runs."""

    def __init__(self, nodes: Nodes, patience: Patience) -> None:
        self._nodes = nodes
        self._patience = patience
        self._ranks: dict[RankKey, _Rank] = {}
        self._runs: dict[Run, set[RankKey]] = defaultdict(set)
        self._made: set[Run] = set()  # now
        self._keys: dict[str, RankKey] = {}  # by uid
        self._open: set[RankKey] = set()  # something becomes of them with time

    def __contains__(self, key: RankKey) -> bool:
        return key in self._ranks

    def keys(self) -> frozenset[RankKey]:
        """Every rank that is there."""
        return frozenset(self._ranks)

    def wanted(self, run: Run) -> bool:
        """Whether something of a run is there, or being made."""
        return run in self._made or bool(self._runs.get(run))

    def begin(self, run: Run, places: Iterable[tuple[RankKey, str]]) -> None:
        """These ranks are being made."""
        self._made.add(run)
        for key, node in places:
            self._add(key, node)

    def made(self, run: Run) -> list[Do]:
        """All that could be made of the run is there."""
        self._made.discard(run)
        return [] if self.wanted(run) else [Clean(run)]

    def failed(self, key: RankKey, reason: str, *, unschedulable: bool = False) -> list[Do]:
        """A rank could not be made."""
        rank = self._ranks.get(key)
        if rank is None:
            return []
        rank.failure = LaunchFailed(key, reason, unschedulable)
        return self._depart(rank)

    def pod(self, uid: str, pod: PodSeen | None, now: float) -> list[Do]:
        """A pod as it is now; None: it is gone."""
        if pod is None:
            rank = self._ranks.get(self._keys.pop(uid, RankKey(0, 0, 0)))
            return self._vanish(rank, now) if rank is not None and rank.uid == uid else []
        if pod.key is None:
            return []
        rank = self._ranks.get(pod.key) or self._add(pod.key, pod.node)
        if rank.uid != pod.uid:
            self._keys[pod.uid] = rank.key
            rank.uid, rank.node, rank.over_at = pod.uid, pod.node or rank.node, None
            rank.vanished = False
        taken = pod.leaving and not (rank.leaving or rank.killed or pod.over)
        rank.leaving, rank.ran = rank.leaving or pod.leaving, rank.ran or pod.started
        self._judge(rank, pod, now)
        if pod.over:
            rank.vanished = False
            return self._over(rank, now)
        self._mind(rank)
        if taken:
            return [Say(RankLeaving(rank.key, rank.why or "somebody deleted its pod"))]
        return self._give_up(rank) if rank.failure is not None and not rank.killed else []

    def missing(self, key: RankKey, now: float) -> list[Do]:
        """There is no pod of this rank."""
        rank = self._ranks.get(key)
        return self._vanish(rank, now) if rank is not None else []

    def warned(self, uid: str, cause: Cause, now: float) -> None:
        """The cluster warns about a pod; `pod` takes it back when the pod gets on."""
        rank = self._ranks.get(self._keys.get(uid, RankKey(0, 0, 0)))
        if rank is not None and not (rank.placed or rank.trouble or rank.over_at):
            rank.trouble, rank.troubled_at = cause, now
            self._mind(rank)

    def kill(self, key: RankKey, node: str, *, ran: bool = False, preempted: bool) -> list[Do]:
        """It shall end; also one of which nothing is known here, but perhaps that it `ran`."""
        rank = self._ranks.get(key) or self._add(key, node)
        rank.killed, rank.ran = True, rank.ran or ran
        self._mind(rank)
        return [End(key, rank.uid, preempted=preempted)] if rank.over_at is None else []

    def node(self, name: str, seen: NodeSeen | None, now: float) -> list[Do]:
        """A node as it is now; None: it was removed."""
        if self._nodes.saw(name, seen, now):
            for rank in self._ranks.values():
                if rank.node == name:
                    self._mind(rank)
        return self.tick(now)

    def tick(self, now: float) -> list[Do]:
        """Time has passed."""
        return [do for key in list(self._open) for do in self._look(self._ranks[key], now)]

    def due(self) -> float:
        """When time next changes something."""
        return min((self._due(self._ranks[key]) for key in self._open), default=math.inf)

    def _add(self, key: RankKey, node: str) -> _Rank:
        rank = self._ranks.setdefault(key, _Rank(key, node))
        self._runs[key.task_id, key.run].add(key)
        return rank

    def _judge(self, rank: _Rank, pod: PodSeen, now: float) -> None:
        """What its cause means for the rank."""
        cause = pod.cause
        rank.placed = rank.placed or pod.placed
        if rank.placed and (cause is None or cause.fault is not Fault.LATER):
            rank.trouble = None
        if pod.started or rank.leaving or rank.killed:
            rank.trouble = None
            rank.why = cause.words if cause is not None else rank.why
        elif cause is not None and cause.fault in (Fault.TASK, Fault.ROOM):
            unschedulable = cause.fault is Fault.ROOM
            rank.failure = rank.failure or LaunchFailed(rank.key, cause.words, unschedulable)
        elif cause is not None and cause.fault is Fault.LATER and rank.trouble is None:
            rank.trouble, rank.troubled_at = cause, now
        elif cause is not None:
            rank.why = cause.words

    def _give_up(self, rank: _Rank) -> list[Do]:
        rank.killed, rank.trouble = True, None
        self._mind(rank)
        return [End(rank.key, rank.uid)]

    def _vanish(self, rank: _Rank, now: float) -> list[Do]:
        """The last word of a kubelet comes before the object goes; where it is dead, we ended the pod by force."""
        if rank.over_at is None:
            rank.vanished = rank.ran and rank.forced_at == -math.inf
        return self._over(rank, now)

    def _over(self, rank: _Rank, now: float) -> list[Do]:
        rank.over_at = now if rank.over_at is None else rank.over_at
        self._mind(rank)
        return [*self._look(rank, now)]

    def _mind(self, rank: _Rank) -> None:
        """Whether time alone may change something for it."""
        ending = rank.killed or rank.leaving
        if rank.over_at is not None or rank.trouble or (ending and self._nodes.away(rank.node)):
            self._open.add(rank.key)
        else:
            self._open.discard(rank.key)

    def _due(self, rank: _Rank) -> float:
        if rank.over_at is not None:
            doubted = rank.vanished and rank.node in self._nodes
            known_at = rank.over_at + (self._patience.vanished if doubted else 0.0)
            return max(known_at, self._nodes.trusted_at(rank.node, rank.over_at))
        if rank.trouble is not None:
            return rank.troubled_at + self._patience.trouble
        return max(self._nodes.trusted_at(rank.node, -math.inf), rank.forced_at + _FORCE_AGAIN)

    def _look(self, rank: _Rank, now: float) -> Iterator[Do]:
        if now < self._due(rank):
            return
        if rank.over_at is not None:
            yield from self._depart(rank)
        elif rank.trouble is not None:
            rank.failure = LaunchFailed(rank.key, rank.trouble.words)
            yield from self._give_up(rank)
        else:
            rank.forced_at = now
            yield End(rank.key, rank.uid, force=True)

    def _depart(self, rank: _Rank) -> list[Do]:
        """Nothing of it exists any more."""
        key = rank.key
        del self._ranks[key]
        self._open.discard(key)
        self._keys.pop(rank.uid, None)
        run = key.task_id, key.run
        self._runs[run].discard(key)
        if not self._runs[run]:
            del self._runs[run]
        said = Say(rank.failure or RankGone(key, rank.why))
        return [said] if self.wanted(run) else [said, Clean(run)]

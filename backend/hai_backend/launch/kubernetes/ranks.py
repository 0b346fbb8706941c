"""What is known of each rank, and what follows from news of its pod or its node. Pure: time is an argument.

A rank is there from the moment it is to be made until nothing of it can run any more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hai_backend.launch.base import LaunchFailed, RankKey, RankLeaving
from hai_backend.launch.kubernetes.actions import Clean, Do, End, Run, Say
from hai_backend.launch.kubernetes.causes import Cause
from hai_backend.launch.kubernetes.nodes import Nodes, Patience
from hai_backend.launch.kubernetes.pods import PodSeen
from hai_backend.launch.kubernetes.rank import Rank
from hai_backend.watch.nodes import NodeSeen

_FORCED = "somebody deleted its pod by force; its program may run on"


class Ranks:
    """The ranks of all runs."""

    def __init__(self, nodes: Nodes, patience: Patience) -> None:
        self._nodes = nodes
        self._patience = patience
        self._ranks: dict[RankKey, Rank] = {}
        self._runs: dict[Run, set[RankKey]] = defaultdict(set)
        self._made: set[Run] = set()  # now
        self._keys: dict[str, RankKey] = {}  # by uid
        self._open: set[RankKey] = set()  # something becomes of them with time

    def __contains__(self, key: RankKey) -> bool:
        return key in self._ranks

    def unseen(self, key: RankKey) -> bool:
        """Whether the rank is there, and no pod of it was shown yet."""
        rank = self._ranks.get(key)
        return rank is not None and not rank.uid

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
        self._keys[pod.uid] = rank.key
        refused, ran = rank.refused, rank.ran
        taken = rank.take(pod, now)
        if rank.refused and not refused:
            self._nodes.refused(
                rank.node, pod.uid, rank.failure.reason if rank.failure else "", now
            )
        elif rank.ran and not ran:
            self._nodes.accepted(rank.node)
        self._mind(rank)
        if pod.over:
            return [*self._look(rank, now)]
        if taken:
            return [Say(RankLeaving(rank.key, rank.why or "somebody deleted its pod"))]
        return self._give_up(rank, now) if rank.failure is not None and not rank.killed else []

    def pods(self, seen: Sequence[tuple[str, PodSeen | None]], now: float) -> list[Do]:
        """Many pods, by uid. All ranks are there before one is judged: a run is cleaned after its last rank only."""
        for _, pod in seen:
            if pod is not None and pod.key is not None:
                self._add(pod.key, pod.node)
        return [do for uid, pod in seen for do in self.pod(uid, pod, now)]

    def missing(self, key: RankKey, now: float) -> list[Do]:
        """There is no pod of this rank."""
        rank = self._ranks.get(key)
        return self._vanish(rank, now) if rank is not None else []

    def warned(self, uid: str, cause: Cause, now: float) -> None:
        """The cluster warns about a pod; `pod` takes it back when the pod gets on."""
        rank = self._ranks.get(self._keys.get(uid, RankKey(0, 0, 0)))
        if rank is not None:
            rank.warned(cause, now)
            self._mind(rank)

    def kill(
        self,
        key: RankKey,
        node: str,
        now: float,
        *,
        ran: bool = False,
        exited: bool = False,
        preempted: bool = False,
    ) -> list[Do]:
        """It shall end; also one of which nothing is known here, but perhaps that it `ran`, or has `exited`."""
        rank = self._ranks.get(key) or self._add(key, node)
        rank.kill(now)
        rank.ran, rank.exited = rank.ran or ran, rank.exited or exited
        self._mind(rank)
        away = rank.exited and key in self._open
        if rank.over_at is None and not away:
            return [End(key, rank.uid, preempted=preempted)]
        return [*self._look(rank, now)]

    def nodes(self, seen: Iterable[tuple[str, NodeSeen | None]], now: float) -> list[Do]:
        """Nodes as they are now, by name; None: it was removed. Many may change at once."""
        changed = {name for name, node in seen if self._nodes.saw(name, node, now)}
        if changed:
            for rank in self._ranks.values():
                if rank.node in changed:
                    self._mind(rank)
        return self.tick(now)

    def tick(self, now: float) -> list[Do]:
        """Time has passed."""
        return [do for key in list(self._open) for do in self._look(self._ranks[key], now)]

    def due(self) -> float:
        """When time next changes something."""
        return min((self._due(self._ranks[key]) for key in self._open), default=math.inf)

    def _add(self, key: RankKey, node: str) -> Rank:
        rank = self._ranks.setdefault(key, Rank(key, node))
        self._runs[key.task_id, key.run].add(key)
        return rank

    def _give_up(self, rank: Rank, now: float) -> list[Do]:
        rank.kill(now)
        rank.trouble = None
        self._mind(rank)
        return [End(rank.key, rank.uid)]

    def _vanish(self, rank: Rank, now: float) -> list[Do]:
        rank.vanish(now)
        self._mind(rank)
        done = [*self._look(rank, now)]
        if not done and not rank.killed and not rank.leaving:
            rank.leaving = True
            return [Say(RankLeaving(rank.key, _FORCED))]
        return done

    def _mind(self, rank: Rank) -> None:
        """Whether time alone may change something for it."""
        if rank.waits(self._nodes):
            self._open.add(rank.key)
        else:
            self._open.discard(rank.key)

    def _due(self, rank: Rank) -> float:
        return rank.due(self._nodes, self._patience)

    def _look(self, rank: Rank, now: float) -> Iterator[Do]:
        if now < self._due(rank):
            return
        if rank.over_at is not None:
            yield from self._depart(rank)
        elif rank.trouble is not None:
            rank.failure = LaunchFailed(rank.key, rank.trouble.words)
            yield from self._give_up(rank, now)
        else:
            rank.forced_at = now
            yield End(rank.key, rank.uid, force=True)

    def _depart(self, rank: Rank) -> list[Do]:
        """Nothing of it exists any more."""
        key = rank.key
        del self._ranks[key]
        self._open.discard(key)
        self._keys.pop(rank.uid, None)
        run = key.task_id, key.run
        self._runs[run].discard(key)
        if not self._runs[run]:
            del self._runs[run]
        said = Say(rank.end())
        return [said] if self.wanted(run) else [said, Clean(run)]

"""Injects random faults, which a seed determines: into requests, watches and nodes, and by forced deletions.

    with Chaos(cluster, seed=17):
        await cluster.advance(600)

With a manual clock, the same seed causes the same faults at the same times. At the end, frozen watches and failed nodes
recover.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hai_backend.testing.kube.cluster import FakeCluster
from hai_backend.testing.kube.timers import Timer


class Chaos:
    """Injects faults while its context lasts.

    `rate` is the share of faulty requests, and `seconds` the mean time between other faults.
    """

    def __init__(
        self, cluster: FakeCluster, seed: int, rate: float = 0.05, seconds: float = 10.0
    ) -> None:
        self._cluster = cluster
        self._random = Random(seed)
        self._seed, self._rate, self._seconds = seed, rate, seconds
        self._timer: Timer | None = None
        self._failed_nodes: set[str] = set()
        self.story: list[tuple[float, str]] = []  # times and descriptions of faults

    def __enter__(self) -> Chaos:
        self._cluster.faults.seed(self._seed, self._rate)
        self._cluster.watch_faults.disturb(self._seed, duplicate=0.05, reorder=0.02, drop=0.02)
        self._schedule_next()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._cluster.faults.clear()
        self._cluster.watch_faults.stop_disturbing()
        self._cluster.watch_faults.thaw()
        for name in sorted(self._failed_nodes):
            self._recover(name)

    def _schedule_next(self) -> None:
        delay = self._random.expovariate(1 / self._seconds)
        self._timer = self._cluster.timers.call_later(delay, self._inject)

    def _inject(self) -> None:
        injections: list[Callable[[], str]] = [
            self._end_watches,
            self._freeze_watches,
            self._expire,
            self._fail_node,
            self._recover_node,
            self._delete_by_force,
        ]
        self._record(self._random.choice(injections)())
        self._schedule_next()

    def delete_by_force(self) -> None:
        """Delete a pod by force now, as `kubectl delete --force --grace-period=0` does."""
        self._record(self._delete_by_force())

    def _record(self, event: str) -> None:
        self.story.append((self._cluster.timers.now(), event))

    def _end_watches(self) -> str:
        self._cluster.watch_faults.end()
        return "streams end"

    def _freeze_watches(self) -> str:
        self._cluster.watch_faults.freeze()
        delay = self._random.uniform(1.0, 60.0)
        self._cluster.timers.call_later(delay, self._thaw)
        return f"streams freeze for {delay:.0f} s"

    def _thaw(self) -> None:
        self._cluster.watch_faults.thaw()

    def _expire(self) -> str:
        self._cluster.expire()
        return "the window expires"

    def _fail_node(self) -> str:
        names = [n for n in self._cluster.nodes.names if n not in self._failed_nodes]
        if not names:
            return "no node is left to lose"
        name = self._random.choice(names)
        self._failed_nodes.add(name)
        if self._random.random() < 0.5:
            self._cluster.nodes.partition(name)
            return f"{name} cannot be reached"
        self._cluster.nodes.power_loss(name)
        return f"{name} loses power"

    def _recover_node(self) -> str:
        if not self._failed_nodes:
            return "no node is lost"
        name = self._random.choice(sorted(self._failed_nodes))
        self._recover(name)
        return f"{name} is back"

    def _delete_by_force(self) -> str:
        """Delete a pod by force, and return a description. Prefer a pod that is being deleted, as people usually do."""
        api = self._cluster.api
        pods = sorted(api.store.sorted_objects(api.resources["pods"]), key=lambda pod: pod.key)
        if not pods:
            return "there is no pod to delete"
        pod = self._random.choice([pod for pod in pods if pod.deleting] or pods)
        api.deletes.delete_if_current(pod, grace=0)
        return f"{pod.name} is deleted by force"

    def _recover(self, name: str) -> None:
        self._failed_nodes.discard(name)
        self._cluster.nodes.heal(name)

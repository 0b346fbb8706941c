"""The state of every rank, and the actions that the launcher must perform when a pod or a node changes. Pure.

A rank is in the table from just before its pod is created until no process of it can run any more. Times are arguments
of the methods.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hai_backend.kube_cache.nodes import ObservedNode
from hai_backend.launch.base import (
    KillRequest,
    LauncherEvent,
    LaunchFailed,
    RankEvictionNotice,
    RankKey,
    RankTerminated,
)
from hai_backend.launch.kubernetes.nodes import Nodes, Timeouts
from hai_backend.launch.kubernetes.pod_failures import Cause, CauseKind
from hai_backend.launch.kubernetes.pods import ObservedPod

_FORCE_RETRY_SECONDS = 10.0
_FORCED = "somebody deleted its pod by force; its program may run on"

Run = tuple[int, int]  # task, number


@dataclass(frozen=True, slots=True)
class Report:
    """The action to report an event to the server."""

    event: LauncherEvent


@dataclass(frozen=True, slots=True)
class DeletePod:
    """The action to delete the pod of a rank.

    `force` is set if the node is lost, because no kubelet can confirm the deletion.
    """

    key: RankKey
    uid: str = ""  # empty if the pod was not observed yet
    force: bool = False
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class WriteCheckpoints:
    """The action to see that the staged checkpoints of a rank are written.

    It comes before the deletion of the pod of a rank that ran, and whose agent has not reported the end of its program.
    Such an agent may not have reported checkpoints, either.
    """

    key: RankKey


@dataclass(frozen=True, slots=True)
class DeleteOwner:
    """The action to delete the owner of a run's objects, because the last rank has terminated."""

    run: Run


Action = Report | DeletePod | WriteCheckpoints | DeleteOwner


@dataclass(slots=True)
class Rank:
    """The state of one rank. `uid` is that of its newest pod; empty if no pod was observed."""

    key: RankKey
    node: str
    uid: str = ""
    # the first request to kill it; its lease is not renewed after this time
    kill_requested_at: float = math.inf
    fence_after: float = 0.0  # the value that its agent uses; the setting may be shorter by now
    exited: bool = False  # its agent has reported that its program has ended
    deleting: bool = False
    failure: LaunchFailed | None = None
    transient_cause: Cause | None = None
    transient_since: float = 0.0
    has_address: bool = False  # its volumes are mounted, so earlier warnings no longer count
    ran: bool = False
    finished_at: float | None = None  # since then, the API server has shown no running pod of it
    vanished: bool = False  # its pod was deleted by force, so no kubelet has reported its end
    why: str = ""
    force_deleted_at: float = -math.inf

    @property
    def kill_requested(self) -> bool:
        """Whether it must end."""
        return self.kill_requested_at < math.inf

    @property
    def node_refused(self) -> bool:
        """Whether its node refused the pod."""
        return self.failure is not None and self.failure.unschedulable

    def kill(self, now: float) -> None:
        """Record that the rank must end."""
        self.kill_requested_at = min(self.kill_requested_at, now)

    def observe(self, pod: ObservedPod, now: float) -> bool:
        """Record the current state of its pod. Return whether somebody other than the server has begun to delete it."""
        if self.uid != pod.uid:
            self.uid, self.node = pod.uid, pod.node or self.node
            self.finished_at, self.vanished = None, False
        self.fence_after = max(self.fence_after, pod.fence_after)
        is_being_deleted = pod.deleting and not (
            self.deleting or self.kill_requested or pod.finished
        )
        self.deleting, self.ran = self.deleting or pod.deleting, self.ran or pod.started
        self._apply_cause(pod, now)
        if pod.finished:
            self.vanished = False
            self.mark_finished(now)
        return is_being_deleted

    def mark_finished(self, now: float) -> None:
        """Record that its pod has finished or does not exist."""
        self.finished_at = now if self.finished_at is None else self.finished_at

    def mark_vanished(self, now: float) -> None:
        """Record that its pod was deleted and no final state was reported.

        A kubelet reports the end of a pod before the object is deleted, unless the object is deleted by force. A pod
        that nobody asked to end may have run, even if the watch has not shown that yet. The launcher itself deletes a
        pod by force only when its program has certainly ended.
        """
        if self.finished_at is None:
            self.vanished = (
                self.ran or not self.kill_requested
            ) and self.force_deleted_at == -math.inf
        self.mark_finished(now)

    def add_warning(self, cause: Cause, now: float) -> None:
        """Record a warning Event of its pod. It is ignored after the node has accepted the pod."""
        if not (self.has_address or self.transient_cause or self.finished_at):
            self.transient_cause, self.transient_since = cause, now

    def final_event(self) -> LaunchFailed | RankTerminated:
        """Return the event to report when no process or pod of the rank exists any more."""
        return self.failure or RankTerminated(self.key, self.why)

    def has_timer(self, nodes: Nodes) -> bool:
        """Return whether its state may change without an event."""
        deleting = (self.kill_requested or self.deleting) and nodes.is_untrusted(self.node)
        return self.finished_at is not None or self.transient_cause is not None or deleting

    def due(self, nodes: Nodes, timeouts: Timeouts) -> float:
        """Return when its state changes without an event.

        Then its termination is certain, a transient failure has lasted too long, or its pod can be deleted by force.
        """
        if self.finished_at is not None:
            return self._terminated_at(self.finished_at, nodes, timeouts)
        if self.transient_cause is not None:
            return self.transient_since + timeouts.transient_failure
        force_again = self.force_deleted_at + _FORCE_RETRY_SECONDS
        return force_again if self.exited else max(self._trusted_at(nodes), force_again)

    def _terminated_at(self, finished_at: float, nodes: Nodes, timeouts: Timeouts) -> float:
        if self.exited:
            return finished_at
        uncertain = self.vanished and self.node in nodes
        certain_at = finished_at + (timeouts.forced_delete if uncertain else 0.0)
        return max(certain_at, self._trusted_at(nodes, finished_at))

    def _trusted_at(self, nodes: Nodes, since: float = -math.inf) -> float:
        """Return when the state of its pod may be trusted.

        A rank that may have run renews its lease until its kill is requested, perhaps long after its node was lost.
        """
        never_ran = self.kill_requested and not self.ran
        renewed_until = -math.inf if never_ran else self.kill_requested_at
        return nodes.trusted_at(self.node, since, renewed_until, self.fence_after)

    def _apply_cause(self, pod: ObservedPod, now: float) -> None:
        """Set the failure, the transient cause or the reason of the end from the cause that the pod reports."""
        cause = pod.cause
        self.has_address = self.has_address or pod.has_address
        if self.has_address and (cause is None or cause.kind is not CauseKind.TRANSIENT):
            self.transient_cause = None
        if pod.started or self.deleting or self.kill_requested:
            self.transient_cause = None
            self.why = cause.text if cause is not None else self.why
        elif cause is not None and cause.kind in (
            CauseKind.TASK,
            CauseKind.NODE,
            CauseKind.TASK_ON_NODE,
        ):
            unschedulable = cause.kind is CauseKind.NODE
            self.failure = self.failure or LaunchFailed(self.key, cause.text, unschedulable)
        elif (
            cause is not None and cause.kind is CauseKind.TRANSIENT and self.transient_cause is None
        ):
            self.transient_cause, self.transient_since = cause, now
        elif cause is not None:
            self.why = cause.text


class Ranks:
    """The table of the ranks of all runs. `staging` says whether they put checkpoints into the memory of nodes."""

    def __init__(self, nodes: Nodes, timeouts: Timeouts, staging: bool = False) -> None:
        self._staging = staging
        self._nodes = nodes
        self._timeouts = timeouts
        self._ranks: dict[RankKey, Rank] = {}
        self._runs: dict[Run, set[RankKey]] = defaultdict(set)
        self._creating: set[Run] = set()
        self._keys: dict[str, RankKey] = {}  # by uid
        self._timed: set[RankKey] = set()  # ranks whose state may change without an event

    def __contains__(self, key: RankKey) -> bool:
        return key in self._ranks

    def has_no_pod(self, key: RankKey) -> bool:
        """Return whether the rank is in the table and no pod of it was observed yet."""
        rank = self._ranks.get(key)
        return rank is not None and not rank.uid

    def keys(self) -> frozenset[RankKey]:
        """Return all ranks in the table."""
        return frozenset(self._ranks)

    def is_needed(self, run: Run) -> bool:
        """Return whether a run has ranks, or whether they are being created."""
        return run in self._creating or bool(self._runs.get(run))

    def creation_begun(self, run: Run, rank_nodes: Iterable[tuple[RankKey, str]]) -> None:
        """Add ranks whose objects are being created."""
        self._creating.add(run)
        for key, node in rank_nodes:
            self._add(key, node)

    def creation_finished(self, run: Run) -> list[Action]:
        """Record that the creation of a run's objects has ended, with or without failures."""
        self._creating.discard(run)
        return [] if self.is_needed(run) else [DeleteOwner(run)]

    def creation_failed(
        self, key: RankKey, reason: str, *, unschedulable: bool = False
    ) -> list[Action]:
        """Record that the pod of a rank could not be created."""
        rank = self._ranks.get(key)
        if rank is None:
            return []
        rank.failure = LaunchFailed(key, reason, unschedulable)
        return self._remove(rank)

    def pod_changed(self, uid: str, pod: ObservedPod | None, now: float) -> list[Action]:
        """Record the current state of a pod; None means that it was deleted."""
        if pod is None:
            rank = self._ranks.get(self._keys.pop(uid, RankKey(0, 0, 0)))
            return self._pod_vanished(rank, now) if rank is not None and rank.uid == uid else []
        if pod.key is None:
            return []
        rank = self._ranks.get(pod.key) or self._add(pod.key, pod.node)
        self._keys[pod.uid] = rank.key
        was_refused, had_run = rank.node_refused, rank.ran
        is_being_deleted = rank.observe(pod, now)
        if rank.node_refused and not was_refused:
            self._nodes.pod_refused(
                rank.node, pod.uid, rank.failure.reason if rank.failure else "", now
            )
        elif rank.ran and not had_run:
            self._nodes.pod_accepted(rank.node)
        self._update_timed(rank)
        if pod.finished:
            return [*self._check_due(rank, now)]
        if is_being_deleted:
            return [Report(RankEvictionNotice(rank.key, rank.why or "somebody deleted its pod"))]
        return self._fail(rank, now) if rank.failure is not None and not rank.kill_requested else []

    def pods_changed(
        self, changes: Sequence[tuple[str, ObservedPod | None]], now: float
    ) -> list[Action]:
        """Record the current states of many pods, by uid.

        All ranks are added before the first is updated. Otherwise a run could seem to have lost its last rank.
        """
        for _, pod in changes:
            if pod is not None and pod.key is not None:
                self._add(pod.key, pod.node)
        return [action for uid, pod in changes for action in self.pod_changed(uid, pod, now)]

    def pod_missing(self, key: RankKey, now: float) -> list[Action]:
        """Record that a rank has no pod."""
        rank = self._ranks.get(key)
        return self._pod_vanished(rank, now) if rank is not None else []

    def pod_warned(self, uid: str, cause: Cause, now: float) -> None:
        """Record a warning Event of a pod. `pod_changed` removes it when the pod makes progress."""
        rank = self._ranks.get(self._keys.get(uid, RankKey(0, 0, 0)))
        if rank is not None:
            rank.add_warning(cause, now)
            self._update_timed(rank)

    def kill(self, request: KillRequest, now: float) -> list[Action]:
        """Kill a rank. If it is not in the table, it is added with the data of the request."""
        key = request.key
        rank = self._ranks.get(key) or self._add(key, request.node)
        rank.kill(now)
        rank.ran, rank.exited = rank.ran or request.ran, rank.exited or request.exited
        self._update_timed(rank)
        waits_for_node = rank.exited and key in self._timed
        if rank.finished_at is None and not waits_for_node:
            delete = DeletePod(key, rank.uid, preempted=request.preempted)
            return [*self._write_unreported(rank), delete]
        return [*self._check_due(rank, now)]

    def nodes_changed(
        self, changes: Iterable[tuple[str, ObservedNode | None]], now: float
    ) -> list[Action]:
        """Record the current states of nodes, by name; None means that the node was removed."""
        changed = {name for name, node in changes if self._nodes.observe(name, node, now)}
        if changed:
            for rank in self._ranks.values():
                if rank.node in changed:
                    self._update_timed(rank)
        return self.tick(now)

    def tick(self, now: float) -> list[Action]:
        """Return the actions that are due at the time `now`."""
        return [
            action for key in list(self._timed) for action in self._check_due(self._ranks[key], now)
        ]

    def due(self) -> float:
        """Return when `tick` must be called next; infinity if no action will be due."""
        return min((self._due(self._ranks[key]) for key in self._timed), default=math.inf)

    def _add(self, key: RankKey, node: str) -> Rank:
        rank = self._ranks.setdefault(key, Rank(key, node))
        self._runs[key.task_id, key.run].add(key)
        return rank

    def _fail(self, rank: Rank, now: float) -> list[Action]:
        rank.kill(now)
        rank.transient_cause = None
        self._update_timed(rank)
        return [DeletePod(rank.key, rank.uid)]

    def _pod_vanished(self, rank: Rank, now: float) -> list[Action]:
        rank.mark_vanished(now)
        self._update_timed(rank)
        actions = [*self._check_due(rank, now)]
        if not actions and not rank.kill_requested and not rank.deleting:
            rank.deleting = True
            return [Report(RankEvictionNotice(rank.key, _FORCED))]
        return actions

    def _update_timed(self, rank: Rank) -> None:
        if rank.has_timer(self._nodes):
            self._timed.add(rank.key)
        else:
            self._timed.discard(rank.key)

    def _due(self, rank: Rank) -> float:
        return rank.due(self._nodes, self._timeouts)

    def _check_due(self, rank: Rank, now: float) -> Iterator[Action]:
        if now < self._due(rank):
            return
        if rank.finished_at is not None:
            yield from self._remove(rank)
        elif rank.transient_cause is not None:
            rank.failure = LaunchFailed(rank.key, rank.transient_cause.text)
            yield from self._fail(rank, now)
        else:
            rank.force_deleted_at = now
            yield DeletePod(rank.key, rank.uid, force=True)

    def _write_unreported(self, rank: Rank) -> list[Action]:
        """Return the action for checkpoints that the agent of a rank may not have reported."""
        is_possible = self._staging and rank.ran and not rank.exited
        return [WriteCheckpoints(rank.key)] if is_possible else []

    def _remove(self, rank: Rank) -> list[Action]:
        """Remove a rank of which no process or pod exists any more."""
        key = rank.key
        del self._ranks[key]
        self._timed.discard(key)
        self._keys.pop(rank.uid, None)
        run = key.task_id, key.run
        self._runs[run].discard(key)
        if not self._runs[run]:
            del self._runs[run]
        report: list[Action] = [*self._write_unreported(rank), Report(rank.final_event())]
        return report if self.is_needed(run) else [*report, DeleteOwner(run)]

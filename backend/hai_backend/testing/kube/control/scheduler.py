"""The scheduler, which binds each pod to the first node that it fits, or reports why it fits no node.

It neither scores nodes nor preempts pods. It tries waiting pods again whenever a node changes or a pod ends.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, condition, dig, with_condition
from hai_backend.testing.kube.control.events import EventRecorder
from hai_backend.testing.kube.control.fit import Amounts, is_finished, misfit_reason, requests_of
from hai_backend.testing.kube.control.node_usage import NodeUsage
from hai_backend.testing.kube.control.pods import Pods
from hai_backend.testing.kube.storage.store import Change, StoredObject

_NAME = "default-scheduler"


class Scheduler:
    """Schedules the pods of the default scheduler."""

    def __init__(self, api: Api, usage: NodeUsage, recorder: EventRecorder, verbose: bool) -> None:
        self._api, self._usage, self._recorder = api, usage, recorder
        self._verbose = verbose
        self._pods = Pods(api)
        self._waiting: dict[str, StoredObject] = {}
        self._next_node = 0  # index of the node to try first; nodes are tried in turn
        self._pass_scheduled = False
        api.store.listen(api.resources["pods"], self._on_pod_change)
        api.store.listen(api.resources["nodes"], self._on_node_change)

    @property
    def idle(self) -> bool:
        return not self._pass_scheduled

    def _on_pod_change(self, change: Change) -> None:
        pod, spec = change.stored, change.stored.body["spec"]
        is_ours = spec.get("schedulerName") == _NAME and not spec.get("nodeName")
        if change.type == "DELETED" or not is_ours or pod.deleting:
            self._waiting.pop(pod.uid, None)
        elif change.type == "ADDED" or pod.uid not in self._waiting:
            self._waiting[pod.uid] = pod
            self._schedule_pass()
        if change.type == "DELETED" or is_finished(pod.body):
            self._schedule_pass()

    def _on_node_change(self, change: Change) -> None:
        if change.previous is None or _scheduling_inputs(change.stored) != _scheduling_inputs(
            change.previous
        ):
            self._schedule_pass()

    def _schedule_pass(self) -> None:
        if self._waiting and not self._pass_scheduled:
            self._pass_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_pass)

    def _run_pass(self) -> None:
        self._pass_scheduled = False
        nodes = self._api.store.sorted_objects(self._api.resources["nodes"])
        free = {node.name: self._usage.free(node) for node in nodes}
        reasons_by_key: dict[str, str] = {}  # equal pods fit no node for the same reasons
        for pod in sorted(self._waiting.values(), key=_order):
            now = self._api.latest(pod)
            if now is None or now.deleting or now.body["spec"].get("nodeName"):
                self._waiting.pop(pod.uid, None)
            elif not now.body["spec"].get("schedulingGates"):
                self._place_pod(now, nodes, free, reasons_by_key)

    def _place_pod(
        self,
        pod: StoredObject,
        nodes: list[StoredObject],
        free: dict[str, Amounts],
        reasons_by_key: dict[str, str],
    ) -> None:
        """Bind a pod to the first node that it fits, or report why it fits none."""
        spec = pod.body["spec"]
        requested, equivalence = requests_of(spec), _equivalence_key(spec)
        if equivalence not in reasons_by_key:
            reasons: Counter[str] = Counter()
            for i in range(len(nodes)):
                node = nodes[(self._next_node + i) % len(nodes)]
                reason = misfit_reason(node.body, spec, free[node.name], requested)
                if not reason:
                    self._next_node = (self._next_node + i + 1) % len(nodes)
                    return self._bind(pod, node.name, free[node.name], requested)
                reasons[reason] += 1
            reasons_by_key[equivalence] = _message(reasons, len(nodes))
        self._report_unschedulable(pod, reasons_by_key[equivalence])

    def _bind(self, pod: StoredObject, node: str, free: Amounts, requested: Amounts) -> None:
        del self._waiting[pod.uid]
        for name, amount in requested.items():
            free[name] = free.get(name, 0) - amount
        bound = self._pods.assign(pod, node)
        self._usage.observe(Change("MODIFIED", bound, pod))
        if self._verbose:
            message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
            self._recorder.normal(pod, "Scheduled", message, _NAME)

    def _report_unschedulable(self, pod: StoredObject, message: str) -> None:
        """Report why a pod fits no node, unless the same reason is already reported."""
        old = condition(pod.body, "PodScheduled")
        if old is not None and old.get("message") == message:
            return
        row = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        conditions = with_condition(
            dig(pod.body, "status.conditions", []), row, self._api.timers.now()
        )
        self._api.writes.set_status(pod, {**pod.body["status"], "conditions": conditions})
        self._recorder.warning(pod, "FailedScheduling", message, _NAME)


def _order(pod: StoredObject) -> tuple[int, int]:
    return -int(pod.body["spec"].get("priority") or 0), pod.revision


def _scheduling_inputs(node: StoredObject) -> tuple[Body, Body, Body]:
    return (
        node.body.get("spec") or {},
        node.meta.get("labels") or {},
        dig(node.body, "status.allocatable", {}),
    )


def _equivalence_key(spec: Body) -> str:
    rows = [spec.get(p) for p in ("tolerations", "nodeSelector", "affinity")]
    return json.dumps([sorted(requests_of(spec).items()), rows])


def _message(reasons: Counter[str], nodes: int) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    reason_text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    tail = f"preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    return f"0/{nodes} nodes are available: {reason_text}. no new claims to deallocate, {tail}"

"""The scheduler: pods without a node get the first that they fit, or learn why there is none.

It neither scores nodes nor preempts; pods that wait are tried again whenever a node changes or a pod leaves.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, condition, dig, with_condition
from hai_backend.testing.kube.control.events import Recorder
from hai_backend.testing.kube.control.fit import Amounts, obstacle, over, requests_of
from hai_backend.testing.kube.control.node_usage import Seats
from hai_backend.testing.kube.control.pods import Pods
from hai_backend.testing.kube.storage.store import Change, Stored

_NAME = "default-scheduler"


class Scheduler:
    """Binds what the default scheduler would bind."""

    def __init__(self, api: Api, seats: Seats, recorder: Recorder, verbose: bool) -> None:
        self._api, self._seats, self._recorder = api, seats, recorder
        self._verbose = verbose
        self._pods = Pods(api)
        self._waiting: dict[str, Stored] = {}
        self._start = 0  # nodes are tried in turn
        self._due = False
        api.store.listen(api.resources["pods"], self._hear_pod)
        api.store.listen(api.resources["nodes"], self._hear_node)

    @property
    def quiet(self) -> bool:
        return not self._due

    def _hear_pod(self, change: Change) -> None:
        pod, spec = change.stored, change.stored.body["spec"]
        ours = spec.get("schedulerName") == _NAME and not spec.get("nodeName")
        if change.type == "DELETED" or not ours or pod.deleting:
            self._waiting.pop(pod.uid, None)
        elif change.type == "ADDED" or pod.uid not in self._waiting:
            self._waiting[pod.uid] = pod
            self._soon()
        if change.type == "DELETED" or over(pod.body):
            self._soon()

    def _hear_node(self, change: Change) -> None:
        if change.previous is None or _matters(change.stored) != _matters(change.previous):
            self._soon()

    def _soon(self) -> None:
        if self._waiting and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> None:
        self._due = False
        nodes = self._api.store.everything(self._api.resources["nodes"])
        free = {node.name: self._seats.free(node) for node in nodes}
        misfits: dict[str, str] = {}  # pods alike have no luck alike
        for pod in sorted(self._waiting.values(), key=_order):
            now = self._api.latest(pod)
            if now is None or now.deleting or now.body["spec"].get("nodeName"):
                self._waiting.pop(pod.uid, None)
            elif not now.body["spec"].get("schedulingGates"):
                self._try(now, nodes, free, misfits)

    def _try(
        self, pod: Stored, nodes: list[Stored], free: dict[str, Amounts], misfits: dict[str, str]
    ) -> None:
        spec = pod.body["spec"]
        wanted, shape = requests_of(spec), _shape(spec)
        if shape not in misfits:
            reasons: Counter[str] = Counter()
            for i in range(len(nodes)):
                node = nodes[(self._start + i) % len(nodes)]
                why = obstacle(node.body, spec, free[node.name], wanted)
                if not why:
                    self._start = (self._start + i + 1) % len(nodes)
                    return self._bind(pod, node.name, free[node.name], wanted)
                reasons[why] += 1
            misfits[shape] = _message(reasons, len(nodes))
        self._say(pod, misfits[shape])

    def _bind(self, pod: Stored, node: str, free: Amounts, wanted: Amounts) -> None:
        del self._waiting[pod.uid]
        for name, amount in wanted.items():
            free[name] = free.get(name, 0) - amount
        bound = self._pods.assign(pod, node)
        self._seats.hear(Change("MODIFIED", bound, pod))
        if self._verbose:
            message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
            self._recorder.normal(pod, "Scheduled", message, _NAME)

    def _say(self, pod: Stored, message: str) -> None:
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


def _order(pod: Stored) -> tuple[int, int]:
    return -int(pod.body["spec"].get("priority") or 0), pod.revision


def _matters(node: Stored) -> tuple[Body, Body, Body]:
    return (
        node.body.get("spec") or {},
        node.meta.get("labels") or {},
        dig(node.body, "status.allocatable", {}),
    )


def _shape(spec: Body) -> str:
    rows = [spec.get(p) for p in ("tolerations", "nodeSelector", "affinity")]
    return json.dumps([sorted(requests_of(spec).items()), rows])


def _message(reasons: Counter[str], nodes: int) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    said = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
    tail = f"preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    return f"0/{nodes} nodes are available: {said}. no new claims to deallocate, {tail}"

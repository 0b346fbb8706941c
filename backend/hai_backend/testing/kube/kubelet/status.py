"""The status of a pod as its kubelet reports it."""

from __future__ import annotations

from hai_backend.testing.kube.body import Body, dig, stamp, with_condition
from hai_backend.testing.kube.kubelet.containers import (
    Container,
    LocalPod,
    Running,
    State,
    Terminated,
    Waiting,
)
from hai_backend.testing.kube.stored import Stored


def pod_status(local: LocalPod, stored: Stored, now: float) -> Body:
    """What the object says now, with everything that is the kubelet's to say."""
    old = stored.body.get("status") or {}
    phase = local.phase
    made: Body = {**old, "phase": phase, "observedGeneration": stored.meta.get("generation", 1)}
    made |= {
        "startTime": stamp(local.since),
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
    }
    if local.ip:
        made |= {"podIP": local.ip, "podIPs": [{"ip": local.ip}]}
    if local.failed is not None:
        made |= {"reason": local.failed[0], "message": local.failed[1]}
    if local.inits:
        made["initContainerStatuses"] = [_container(c, _done(c)) for c in local.inits]
    made["containerStatuses"] = [_container(c, isinstance(c.state, Running)) for c in local.mains]
    made["conditions"] = _conditions(local, phase, dig(old, "conditions", []), now)
    return made


def rejected_status(stored: Stored, reason: str, message: str, now: float) -> Body:
    """The status of a pod that its kubelet does not take."""
    old = stored.body.get("status") or {}
    return {**old, "phase": "Failed", "reason": reason, "message": message, "startTime": stamp(now)}


def _done(container: Container) -> bool:
    return isinstance(container.state, Terminated) and container.state.code == 0


def _container(container: Container, ready: bool) -> Body:
    running = isinstance(container.state, Running)
    began = running or isinstance(container.state, Terminated) or container.last is not None
    made: Body = {"name": container.name, "state": _state(container.state, container.id)}
    made |= {"lastState": _state(container.last, "") if container.last is not None else {}}
    made |= {"ready": ready, "restartCount": container.restarts, "started": running}
    image = container.spec["image"]
    made |= {"image": image, "imageID": f"fake://{image}" if began else ""}
    return made | ({"containerID": f"fake://{container.id}"} if began else {})


def _state(state: State, identity: str) -> Body:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(since):
            return {"running": {"startedAt": stamp(since)}}
    made: Body = {"exitCode": state.code, "reason": state.reason}
    made |= {"startedAt": stamp(state.started), "finishedAt": stamp(state.finished)}
    made |= {"message": state.message} if state.message else {}
    return {"terminated": made | ({"containerID": f"fake://{identity}"} if identity else {})}


def _conditions(local: LocalPod, phase: str, old: list[Body], now: float) -> list[Body]:
    unready = [c.name for c in local.mains if not isinstance(c.state, Running)]
    initialized = all(_done(c) for c in local.inits)
    missing = f"containers with unready status: [{' '.join(unready)}]"
    why: tuple[str, str] = ("ContainersNotReady", missing)
    if phase == "Succeeded":
        why = ("PodCompleted", "")
    rows = [
        _row("PodReadyToStartContainers", bool(local.ip)),
        _row("Initialized", initialized, "ContainersNotInitialized"),
        _row("Ready", not unready, *why),
        _row("ContainersReady", not unready, *why),
        _row("PodScheduled", True),
    ]
    for row in rows:
        old = with_condition(old, row, now)
    return old


def _row(kind: str, true: bool, reason: str = "", message: str = "") -> Body:
    row: Body = {"type": kind, "status": "True" if true else "False", "lastProbeTime": None}
    if not true and reason:
        row |= {"reason": reason} | ({"message": message} if message else {})
    return row

"""The state of a pod and its containers on a node, and the status that the kubelet reports."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hai_backend.testing.kube.body import Body, dig, stamp, with_condition
from hai_backend.testing.kube.storage.store import StoredObject

_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS = 10.0, 300.0


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    since: float


@dataclass(frozen=True, slots=True)
class Terminated:
    code: int
    reason: str
    started: float
    finished: float
    message: str = ""


State = Waiting | Running | Terminated


@dataclass(eq=False, slots=True)
class Container:
    """A container. `previous` is its final state before the last restart."""

    spec: Body
    state: State
    restarts: int = 0
    previous: Terminated | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    def end(self, code: int, now: float, reason: str = "", message: str = "") -> None:
        """Set the container terminated, unless it has already terminated."""
        if not isinstance(self.state, Terminated):
            started = self.state.since if isinstance(self.state, Running) else now
            reason = reason or ("Completed" if code == 0 else "Error")
            self.state = Terminated(code, reason, started, now, message)

    def start(self, now: float) -> None:
        """Set the container running, for the first time or again."""
        if isinstance(self.state, Terminated):
            self.previous = self.state
        if self.previous is not None:
            self.restarts += 1
            self.id = uuid.uuid4().hex
        self.state = Running(now)

    def backoff(self) -> float:
        """Return the seconds to wait before a restart: 0 before the first restart, later twice as long each time."""
        if not self.restarts:
            return 0.0
        return min(_LONGEST_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2.0 ** (self.restarts - 1))


@dataclass(eq=False, slots=True)
class LocalPod:
    """A pod on a node, as its kubelet knows it."""

    pod: StoredObject
    since: float
    init_containers: list[Container]
    main_containers: list[Container]
    ip: str = ""
    failed: tuple[str, str] | None = None  # reason and message if the pod failed as a whole
    stopping: bool = False
    requested_grace: int | None = None  # seconds; from the last request to stop the pod

    @staticmethod
    def from_object(pod: StoredObject, now: float) -> LocalPod:
        spec = pod.body["spec"]
        inits = [Container(c, Waiting("PodInitializing")) for c in spec.get("initContainers") or []]
        first = "PodInitializing" if inits else "ContainerCreating"
        return LocalPod(pod, now, inits, [Container(c, Waiting(first)) for c in spec["containers"]])

    @property
    def node(self) -> str:
        return str(self.pod.body["spec"]["nodeName"])

    @property
    def policy(self) -> str:
        return str(dig(self.pod.body, "spec.restartPolicy", "Always"))

    @property
    def containers(self) -> list[Container]:
        return [*self.init_containers, *self.main_containers]

    def will_restart(self, container: Container) -> bool:
        """Return whether a terminated container will start again."""
        state = container.state
        if not isinstance(state, Terminated) or self.stopping or self.failed is not None:
            return False
        if container in self.init_containers:
            return state.code != 0 and self.policy != "Never"
        return self.policy == "Always" or (self.policy == "OnFailure" and state.code != 0)

    @property
    def phase(self) -> str:
        """The phase of the pod, derived as by the real kubelet."""
        terminated = [c.state for c in self.main_containers if isinstance(c.state, Terminated)]
        if len(terminated) == len(self.main_containers) and not any(
            self.will_restart(c) for c in self.main_containers
        ):
            succeeded = self.failed is None and all(state.code == 0 for state in terminated)
            return "Succeeded" if succeeded else "Failed"
        if self.failed is not None and not any(
            isinstance(c.state, Running) for c in self.containers
        ):
            return "Failed"
        if not all(_has_succeeded(c) for c in self.init_containers):
            return "Failed" if any(self._has_failed(c) for c in self.init_containers) else "Pending"
        never_ran = any(
            isinstance(c.state, Waiting) and c.previous is None for c in self.main_containers
        )
        return "Pending" if never_ran else "Running"

    def _has_failed(self, container: Container) -> bool:
        state = container.state
        return (
            isinstance(state, Terminated) and state.code != 0 and not self.will_restart(container)
        )


def _has_succeeded(container: Container) -> bool:
    return isinstance(container.state, Terminated) and container.state.code == 0


def pod_status(local: LocalPod, stored: StoredObject, now: float) -> Body:
    """Return the status of the stored pod, with all fields that a kubelet sets."""
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
    if local.init_containers:
        made["initContainerStatuses"] = [
            _container_status(c, _has_succeeded(c)) for c in local.init_containers
        ]
    made["containerStatuses"] = [
        _container_status(c, isinstance(c.state, Running)) for c in local.main_containers
    ]
    made["conditions"] = _conditions(local, phase, dig(old, "conditions", []), now)
    return made


def rejected_status(stored: StoredObject, reason: str, message: str, now: float) -> Body:
    """Return the status of a pod that its kubelet rejects."""
    old = stored.body.get("status") or {}
    return {**old, "phase": "Failed", "reason": reason, "message": message, "startTime": stamp(now)}


def _container_status(container: Container, ready: bool) -> Body:
    running = isinstance(container.state, Running)
    has_started = (
        running or isinstance(container.state, Terminated) or container.previous is not None
    )
    made: Body = {"name": container.name, "state": _state(container.state, container.id)}
    made |= {"lastState": _state(container.previous, "") if container.previous is not None else {}}
    made |= {"ready": ready, "restartCount": container.restarts, "started": running}
    image = container.spec["image"]
    made |= {"image": image, "imageID": f"fake://{image}" if has_started else ""}
    return made | ({"containerID": f"fake://{container.id}"} if has_started else {})


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
    unready = [c.name for c in local.main_containers if not isinstance(c.state, Running)]
    initialized = all(_has_succeeded(c) for c in local.init_containers)
    missing = f"containers with unready status: [{' '.join(unready)}]"
    why: tuple[str, str] = ("ContainersNotReady", missing)
    if phase == "Succeeded":
        why = ("PodCompleted", "")
    rows = [
        _condition("PodReadyToStartContainers", bool(local.ip)),
        _condition("Initialized", initialized, "ContainersNotInitialized"),
        _condition("Ready", not unready, *why),
        _condition("ContainersReady", not unready, *why),
        _condition("PodScheduled", True),
    ]
    for row in rows:
        old = with_condition(old, row, now)
    return old


def _condition(kind: str, true: bool, reason: str = "", message: str = "") -> Body:
    row: Body = {"type": kind, "status": "True" if true else "False", "lastProbeTime": None}
    if not true and reason:
        row |= {"reason": reason} | ({"message": message} if message else {})
    return row

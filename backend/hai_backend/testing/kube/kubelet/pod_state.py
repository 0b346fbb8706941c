"""A pod as its kubelet knows it: its containers and the states that they are in."""

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
    """One container; `last` is how it ended before it was started again."""

    spec: Body
    state: State
    restarts: int = 0
    last: Terminated | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    def end(self, code: int, now: float, reason: str = "", message: str = "") -> None:
        """It has exited; asking twice is no error."""
        if not isinstance(self.state, Terminated):
            started = self.state.since if isinstance(self.state, Running) else now
            reason = reason or ("Completed" if code == 0 else "Error")
            self.state = Terminated(code, reason, started, now, message)

    def again(self, now: float) -> None:
        """It runs once more."""
        if isinstance(self.state, Terminated):
            self.last = self.state
        if self.last is not None:
            self.restarts += 1
            self.id = uuid.uuid4().hex
        self.state = Running(now)

    def backoff(self) -> float:
        """The first restart is at once, then each takes twice as long."""
        if not self.restarts:
            return 0.0
        return min(_LONGEST_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2.0 ** (self.restarts - 1))


@dataclass(eq=False, slots=True)
class LocalPod:
    """A pod on a node."""

    pod: StoredObject
    since: float
    inits: list[Container]
    mains: list[Container]
    ip: str = ""
    failed: tuple[str, str] | None = None  # why the whole pod failed, and in words
    stopping: bool = False
    requested_grace: int | None = None  # what it was last told to stop within

    @staticmethod
    def of(pod: StoredObject, now: float) -> LocalPod:
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
        return [*self.inits, *self.mains]

    def restarts(self, container: Container) -> bool:
        """Is this ended container started again."""
        state = container.state
        if not isinstance(state, Terminated) or self.stopping or self.failed is not None:
            return False
        if container in self.inits:
            return state.code != 0 and self.policy != "Never"
        return self.policy == "Always" or (self.policy == "OnFailure" and state.code != 0)

    @property
    def phase(self) -> str:
        """As the real kubelet derives it."""
        ended = [c.state for c in self.mains if isinstance(c.state, Terminated)]
        if len(ended) == len(self.mains) and not any(self.restarts(c) for c in self.mains):
            good = self.failed is None and all(state.code == 0 for state in ended)
            return "Succeeded" if good else "Failed"
        if self.failed is not None and not any(
            isinstance(c.state, Running) for c in self.containers
        ):
            return "Failed"
        if not all(_succeeded(c) for c in self.inits):
            return "Failed" if any(self._hopeless(c) for c in self.inits) else "Pending"
        fresh = any(isinstance(c.state, Waiting) and c.last is None for c in self.mains)
        return "Pending" if fresh else "Running"

    def _hopeless(self, container: Container) -> bool:
        state = container.state
        return isinstance(state, Terminated) and state.code != 0 and not self.restarts(container)


def _succeeded(container: Container) -> bool:
    return isinstance(container.state, Terminated) and container.state.code == 0


def pod_status(local: LocalPod, stored: StoredObject, now: float) -> Body:
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


def rejected_status(stored: StoredObject, reason: str, message: str, now: float) -> Body:
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

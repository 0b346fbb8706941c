"""A pod as its kubelet knows it: its containers and the states that they are in."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.stored import Stored

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

    pod: Stored
    since: float
    inits: list[Container]
    mains: list[Container]
    ip: str = ""
    failed: tuple[str, str] | None = None  # why the whole pod failed, and in words
    stopping: bool = False
    told_grace: int | None = None  # what it was last told to stop within

    @staticmethod
    def of(pod: Stored, now: float) -> LocalPod:
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

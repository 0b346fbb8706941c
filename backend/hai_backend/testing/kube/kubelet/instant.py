"""Pods without processes: they run when they are bound and end when the test says so. For large numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.kubelet.logs import LogOptions, not_yet
from hai_backend.testing.kube.kubelet.pod_state import (
    Container,
    LocalPod,
    Running,
    Terminated,
    Waiting,
)
from hai_backend.testing.kube.kubelet.runtime import Runtime
from hai_backend.testing.kube.storage.store import StoredObject

_TERMINATED = 143
_KILLED = 137


class InstantKubelet(Runtime):
    """`starts`: pods run as soon as they are bound. `stop_seconds`: how long a pod takes to leave; None: its grace.

    `linger_seconds`: how long containers run on after their pod was deleted by force.
    """

    def __init__(
        self,
        api: Api,
        starts: bool = True,
        stop_seconds: float | None = 0.0,
        linger_seconds: float = 0.0,
    ) -> None:
        super().__init__(api)
        self.starts = starts
        self.stop_seconds = stop_seconds
        self.linger_seconds = linger_seconds
        self.logs: dict[str, bytes] = {}  # by the pod's name

    def start(self, pod: StoredObject) -> None:
        local = self.take(pod)
        if self.starts:
            self._run(local)
        self.publish(local)
        self.watch_deadline(local)

    def run(self, name: str, namespace: str = "default") -> None:
        """Let a pod run that was held."""
        local = self.find(name, namespace)
        self._run(local)
        self.publish(local)

    def exit(
        self,
        name: str,
        code: int = 0,
        namespace: str = "default",
        container: str = "",
        reason: str = "",
    ) -> None:
        """Let a container end, or all of them. `reason` is OOMKilled, or what the code says."""
        local = self.find(name, namespace)
        now = self.api.timers.now()
        for one in local.mains:
            if container in ("", one.name):
                one.end(code, now, reason)
                self._restart_later(local, one)
        self.publish(local)

    def stop(self, local: LocalPod) -> None:
        first, local.stopping = not local.stopping, True
        self.publish(local)
        wait = self.grace(local) if self.stop_seconds is None else self.stop_seconds
        code = _KILLED if self.stop_seconds is None else _TERMINATED
        if wait:
            self.api.timers.call_later(wait, lambda: self._stopped(local, code))
        elif first or self.settled(local):
            self._stopped(local, code)

    def expire(self, local: LocalPod) -> None:
        for container in local.containers:
            container.end(_KILLED, self.api.timers.now())
        self.publish(local)

    def forget(self, local: LocalPod) -> None:
        local.stopping = True
        if self.linger_seconds and not self.settled(local):
            self.api.timers.call_later(self.linger_seconds, lambda: self.drop(local))
        else:
            self.drop(local)

    def crash(self, node: str) -> None:
        for local in self.on(node):
            for container in local.containers:
                container.end(255, self.api.timers.now(), "Unknown")

    def revive(self, local: LocalPod) -> None:
        for container in local.mains:
            self._restart_later(local, container)
        self.publish(local)

    def settled(self, local: LocalPod) -> bool:
        return not any(isinstance(c.state, Running) for c in local.containers)

    def read(self, asked: LogOptions) -> bytes:
        self.refuse_silent(asked)
        local = self.pods.get(asked.pod.uid)
        began = local is not None and not all(
            isinstance(c.state, Waiting) for c in local.containers
        )
        return self.logs.get(asked.pod.name, b"") if began else not_yet(asked)

    def follow(self, asked: LogOptions) -> AsyncIterator[bytes]:
        return _once(self.read(asked))

    def _run(self, local: LocalPod) -> None:
        now = self.api.timers.now()
        local.ip = "127.0.0.1"
        for init in local.inits:
            init.end(0, now)
        for container in local.mains:
            container.again(now)

    def _restart_later(self, local: LocalPod, container: Container) -> None:
        if not local.restarts(container):
            return
        wait = container.backoff()
        if wait and isinstance(container.state, Terminated):
            container.last = container.state
            container.state = Waiting(
                "CrashLoopBackOff", f"back-off {wait:g}s restarting failed container"
            )
        self.api.timers.call_later(wait, lambda: self._restart(local, container))

    def _restart(self, local: LocalPod, container: Container) -> None:
        if local.pod.uid in self.pods and not local.stopping:
            container.again(self.api.timers.now())
            self.publish(local)

    def _stopped(self, local: LocalPod, code: int) -> None:
        if local.pod.uid not in self.pods:
            return
        for container in local.mains:
            container.end(code, self.api.timers.now())
        self.finish(local)


async def _once(text: bytes) -> AsyncIterator[bytes]:
    yield text

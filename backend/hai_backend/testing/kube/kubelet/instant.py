"""A kubelet without processes, for many pods. Pods run when they are bound, and end when a test calls `exit`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.kubelet.logs import LogOptions, one_chunk, waiting_log
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
    """Changes only the state of pods.

    If `starts` is True, pods run as soon as they are bound. `stop_seconds` is how long a pod takes to stop; None means
    its grace period. `linger_seconds` is how long containers continue after their pod was deleted by force.
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
        local = self.add(pod)
        if self.starts:
            self._run(local)
        self.publish(local)
        self.watch_deadline(local)

    def run(self, name: str, namespace: str = "default") -> None:
        """Run a pod that was not started because `starts` is False."""
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
        """End a container, or all containers of a pod. If `reason` is empty, it follows from the exit code."""
        local = self.find(name, namespace)
        now = self.api.timers.now()
        for each in local.main_containers:
            if container in ("", each.name):
                each.end(code, now, reason)
                self._restart_later(local, each)
        self.publish(local)

    def stop(self, local: LocalPod) -> None:
        is_first_request, local.stopping = not local.stopping, True
        self.publish(local)
        wait = self.remaining_grace(local) if self.stop_seconds is None else self.stop_seconds
        code = _KILLED if self.stop_seconds is None else _TERMINATED
        if wait:
            self.api.timers.call_later(wait, lambda: self._end_stopped(local, code))
        elif is_first_request or self.has_ended(local):
            self._end_stopped(local, code)

    def end_at_deadline(self, local: LocalPod) -> None:
        for container in local.containers:
            container.end(_KILLED, self.api.timers.now())
        self.publish(local)

    def end_deleted(self, local: LocalPod) -> None:
        local.stopping = True
        if self.linger_seconds and not self.has_ended(local):
            self.api.timers.call_later(self.linger_seconds, lambda: self.remove(local))
        else:
            self.remove(local)

    def crash(self, node: str) -> None:
        for local in self.pods_on(node):
            for container in local.containers:
                container.end(255, self.api.timers.now(), "Unknown")

    def resume(self, local: LocalPod) -> None:
        for container in local.main_containers:
            self._restart_later(local, container)
        self.publish(local)

    def has_ended(self, local: LocalPod) -> bool:
        return not any(isinstance(c.state, Running) for c in local.containers)

    def read(self, options: LogOptions) -> bytes:
        self.check_reachable(options)
        local = self.pods.get(options.pod.uid)
        has_started = local is not None and not all(
            isinstance(c.state, Waiting) for c in local.containers
        )
        return self.logs.get(options.pod.name, b"") if has_started else waiting_log(options)

    def follow(self, options: LogOptions) -> AsyncIterator[bytes]:
        return one_chunk(self.read(options))

    def _run(self, local: LocalPod) -> None:
        now = self.api.timers.now()
        local.ip = "127.0.0.1"
        for init in local.init_containers:
            init.end(0, now)
        for container in local.main_containers:
            container.start(now)

    def _restart_later(self, local: LocalPod, container: Container) -> None:
        if not local.will_restart(container):
            return
        wait = container.backoff()
        if wait and isinstance(container.state, Terminated):
            container.previous = container.state
            container.state = Waiting(
                "CrashLoopBackOff", f"back-off {wait:g}s restarting failed container"
            )
        self.api.timers.call_later(wait, lambda: self._restart(local, container))

    def _restart(self, local: LocalPod, container: Container) -> None:
        if local.pod.uid in self.pods and not local.stopping:
            container.start(self.api.timers.now())
            self.publish(local)

    def _end_stopped(self, local: LocalPod, code: int) -> None:
        if local.pod.uid not in self.pods:
            return
        for container in local.main_containers:
            container.end(code, self.api.timers.now())
        self.delete_stopped(local)

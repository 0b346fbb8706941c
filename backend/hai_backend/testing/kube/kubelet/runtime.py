"""The base class of the two kubelets. It keeps the pods of all nodes, and reports their status."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import dig
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.kubelet.logs import LogOptions
from hai_backend.testing.kube.kubelet.pod_state import LocalPod, pod_status
from hai_backend.testing.kube.storage.store import StoredObject


class Runtime(ABC):
    """Runs the pods of all nodes. `is_alive(node)` returns whether the kubelet of the node can be reached."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.is_alive: Callable[[str], bool] = lambda node: True
        self.pods: dict[str, LocalPod] = {}  # by uid
        self._pods_by_node: dict[str, dict[str, LocalPod]] = defaultdict(dict)  # by node

    def pods_on(self, node: str) -> list[LocalPod]:
        return list(self._pods_by_node[node].values())

    def add(self, pod: StoredObject) -> LocalPod:
        """Add a pod of the API server."""
        local = LocalPod.from_object(pod, self.api.timers.now())
        self.pods[pod.uid] = self._pods_by_node[local.node][pod.uid] = local
        return local

    def remove(self, local: LocalPod) -> None:
        """Remove a pod."""
        self.pods.pop(local.pod.uid, None)
        self._pods_by_node[local.node].pop(local.pod.uid, None)

    def find(self, name: str, namespace: str = "default") -> LocalPod:
        """Return the newest pod of this name. Raises LookupError.

        An earlier pod of the name may still run if it was deleted by force.
        """
        found = [p for p in self.pods.values() if p.pod.key == (namespace, name)]
        if not found:
            raise LookupError(
                f"no kubelet has a pod {namespace}/{name}; it has {len(self.pods)} others"
            )
        return found[-1]

    def publish(self, local: LocalPod) -> None:
        """Report the status of a pod, if its node can be reached."""
        now = self.api.latest(local.pod)
        if now is not None and self.is_alive(local.node):
            status = pod_status(local, now, self.api.timers.now())
            self.api.writes.set_status(now, status)

    def delete_stopped(self, local: LocalPod) -> None:
        """Report a stopped pod whose containers have ended, and delete its object."""
        self.publish(local)
        if not self.is_alive(local.node):
            return
        self.remove(local)
        self.api.deletes.delete_if_current(local.pod, grace=0)

    def check_reachable(self, options: LogOptions) -> None:
        """Raise ApiError 500 if the kubelet of the pod cannot be reached."""
        node = dig(options.pod.body, "spec.nodeName", "")
        if node and not self.is_alive(node):
            where = f"https://{node}:10250/containerLogs"
            raise ApiError(500, f'Get "{where}": dial tcp: connect: connection refused')

    def remaining_grace(self, local: LocalPod) -> float:
        """Return the grace period of a pod that is being stopped, in seconds; a short one if its object was deleted."""
        now = self.api.latest(local.pod)
        if now is None:
            return 2.0
        return max(float(dig(now.body, "metadata.deletionGracePeriodSeconds", 30)), 1.0)

    def watch_deadline(self, local: LocalPod) -> None:
        """Fail the pod at its activeDeadlineSeconds, if it has such a deadline."""
        seconds = dig(local.pod.body, "spec.activeDeadlineSeconds")
        if seconds is not None:
            self.api.timers.call_later(float(seconds), lambda: self._handle_deadline(local))

    def _handle_deadline(self, local: LocalPod) -> None:
        if local.pod.uid in self.pods and not local.stopping and not self.has_ended(local):
            why = "Pod was active on the node longer than the specified deadline"
            local.failed = "DeadlineExceeded", why
            self.end_at_deadline(local)

    def resume(self, local: LocalPod) -> None:
        """Continue a pod that was not deleted while its node was unreachable."""
        self.publish(local)

    @abstractmethod
    def start(self, pod: StoredObject) -> None:
        """Start a pod that was bound to a node."""

    @abstractmethod
    def stop(self, local: LocalPod) -> None:
        """Stop a pod that is being deleted. Called again when its grace period was shortened."""

    @abstractmethod
    def end_at_deadline(self, local: LocalPod) -> None:
        """End the containers of a pod whose deadline has passed. Its object stays."""

    @abstractmethod
    def end_deleted(self, local: LocalPod) -> None:
        """End a pod whose object was deleted."""

    @abstractmethod
    def crash(self, node: str) -> None:
        """End all containers of a node that has lost power."""

    @abstractmethod
    def has_ended(self, local: LocalPod) -> bool:
        """Return whether nothing of the pod runs any more."""

    @abstractmethod
    def read(self, options: LogOptions) -> bytes:
        """Return the log of a container. Raises ApiError."""

    @abstractmethod
    def follow(self, options: LogOptions) -> AsyncIterator[bytes]:
        """Stream the log of a container until it ends. The call itself raises ApiError."""

    async def close(self) -> None:
        """End all pods."""
        for local in list(self.pods.values()):
            self.remove(local)

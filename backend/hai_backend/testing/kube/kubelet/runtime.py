"""What the two kinds of kubelet share: which pods they have, and how they report them."""

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
    """Runs the pods of all nodes. `alive(node)` says whether the node's kubelet can be heard."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.alive: Callable[[str], bool] = lambda node: True
        self.pods: dict[str, LocalPod] = {}  # by uid
        self._on: dict[str, dict[str, LocalPod]] = defaultdict(dict)  # by node

    def on(self, node: str) -> list[LocalPod]:
        return list(self._on[node].values())

    def take(self, pod: StoredObject) -> LocalPod:
        """Begin to know a pod."""
        local = LocalPod.of(pod, self.api.timers.now())
        self.pods[pod.uid] = self._on[local.node][pod.uid] = local
        return local

    def drop(self, local: LocalPod) -> None:
        """Forget it."""
        self.pods.pop(local.pod.uid, None)
        self._on[local.node].pop(local.pod.uid, None)

    def find(self, name: str, namespace: str = "default") -> LocalPod:
        """By name; of several with one name (one was deleted by force and still runs), the newest."""
        found = [p for p in self.pods.values() if p.pod.key == (namespace, name)]
        if not found:
            raise LookupError(
                f"no kubelet has a pod {namespace}/{name}; it has {len(self.pods)} others"
            )
        return found[-1]

    def publish(self, local: LocalPod) -> None:
        """Report the pod, if its node can be heard."""
        now = self.api.latest(local.pod)
        if now is not None and self.alive(local.node):
            status = pod_status(local, now, self.api.timers.now())
            self.api.writes.set_status(now, status)

    def finish(self, local: LocalPod) -> None:
        """A stopped pod whose containers have all ended: report it, and let its object go."""
        self.publish(local)
        if not self.alive(local.node):
            return
        self.drop(local)
        self.api.deletes.delete_if_current(local.pod, grace=0)

    def refuse_silent(self, asked: LogOptions) -> None:
        """Raises ApiError 500 when the pod's kubelet cannot be reached."""
        node = dig(asked.pod.body, "spec.nodeName", "")
        if node and not self.alive(node):
            where = f"https://{node}:10250/containerLogs"
            raise ApiError(500, f'Get "{where}": dial tcp: connect: connection refused')

    def grace(self, local: LocalPod) -> float:
        """What a pod that is to stop still has; little when its object is gone already."""
        now = self.api.latest(local.pod)
        if now is None:
            return 2.0
        return max(float(dig(now.body, "metadata.deletionGracePeriodSeconds", 30)), 1.0)

    def watch_deadline(self, local: LocalPod) -> None:
        """Fail the pod when it has been active for longer than it may."""
        seconds = dig(local.pod.body, "spec.activeDeadlineSeconds")
        if seconds is not None:
            self.api.timers.call_later(float(seconds), lambda: self._deadline(local))

    def _deadline(self, local: LocalPod) -> None:
        if local.pod.uid in self.pods and not local.stopping and not self.settled(local):
            why = "Pod was active on the node longer than the specified deadline"
            local.failed = "DeadlineExceeded", why
            self.expire(local)

    def revive(self, local: LocalPod) -> None:
        """The node is back, and the pod was not deleted meanwhile."""
        self.publish(local)

    @abstractmethod
    def start(self, pod: StoredObject) -> None:
        """The pod was given to this node."""

    @abstractmethod
    def stop(self, local: LocalPod) -> None:
        """The pod is being deleted. Also said when its grace was shortened."""

    @abstractmethod
    def expire(self, local: LocalPod) -> None:
        """The pod's deadline is over: its containers must end, its object stays."""

    @abstractmethod
    def forget(self, local: LocalPod) -> None:
        """The object is gone; what still runs must end."""

    @abstractmethod
    def crash(self, node: str) -> None:
        """The node has lost its power."""

    @abstractmethod
    def settled(self, local: LocalPod) -> bool:
        """Nothing of the pod runs any more."""

    @abstractmethod
    def read(self, asked: LogOptions) -> bytes:
        """A container's log. Raises ApiError."""

    @abstractmethod
    def follow(self, asked: LogOptions) -> AsyncIterator[bytes]:
        """The same until the container ends. Raises ApiError at once."""

    async def close(self) -> None:
        """End everything."""
        for local in list(self.pods.values()):
            self.drop(local)

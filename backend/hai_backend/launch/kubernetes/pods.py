"""The facts about a pod that the launcher keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hai_backend.kube_cache.source import Body
from hai_backend.launch.base import RankKey
from hai_backend.launch.kubernetes.pod_failures import Cause, cause_of
from hai_backend.launch.manifests.names import FENCE_AFTER, key_of

_FINISHED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """The observed state of a pod.

    `finished` means that none of its containers runs any more, `has_address` that its volumes are mounted and its
    network is set up, and `started` that its agent has begun to run. `cause` is why it does not run or has ended.
    """

    key: RankKey | None  # None if the pod is not that of a rank
    uid: str
    name: str
    node: str
    finished: bool
    has_address: bool
    started: bool
    deleting: bool
    cause: Cause | None
    # seconds without a server after which its agent ends at the latest; 0 if not known
    fence_after: float = 0.0


def read_pod(body: Body) -> ObservedPod:
    """Return the facts about a pod."""
    meta, status = body["metadata"], body.get("status") or {}
    return ObservedPod(
        key=key_of(meta.get("labels") or {}),
        uid=meta["uid"],
        name=meta["name"],
        node=(body.get("spec") or {}).get("nodeName", ""),
        finished=status.get("phase") in _FINISHED_PHASES,
        has_address=bool(status.get("podIP")),
        started=_started(status),
        deleting="deletionTimestamp" in meta,
        cause=cause_of(status),
        fence_after=_fence_after(meta.get("annotations") or {}),
    )


def _fence_after(annotations: Body) -> float:
    """Return the annotation as a number of seconds; 0 if it is missing.

    The value 0 becomes infinity, because such an agent never ends by itself.
    """
    try:
        return float(annotations[FENCE_AFTER]) or math.inf
    except (KeyError, ValueError):
        return 0.0


def _started(status: Body) -> bool:
    states = [c.get("state") or {} for c in status.get("containerStatuses") or ()]
    return any("running" in s or _ran(s.get("terminated")) for s in states)


def _ran(terminated: Body | None) -> bool:
    return terminated is not None and terminated.get("reason") not in _NEVER_RAN


_NEVER_RAN = ("StartError", "ContainerCannotRun", "ContainerStatusUnknown")

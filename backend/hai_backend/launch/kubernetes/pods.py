"""What is kept of a pod: whose it is, where, whether it is over, and what is wrong with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hai_backend.launch.base import RankKey
from hai_backend.launch.kubernetes.causes import Cause, cause_of
from hai_backend.launch.manifests.names import FENCE_AFTER, key_of
from hai_backend.watch.source import Body

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodSeen:
    """`over`: no container of it runs any more. `cause` says why it does not run, or no longer.

    `placed`: its volumes are mounted and it has an address. `started`: its agent has begun to run.
    """

    key: RankKey | None  # None: not one of ours
    uid: str
    name: str
    node: str
    over: bool
    placed: bool
    started: bool
    leaving: bool
    cause: Cause | None
    fence_after: float = (
        0.0  # seconds after which its agent ends without a server, at the latest; 0: not known
    )


def read_pod(body: Body) -> PodSeen:
    """What is kept of a pod."""
    meta, status = body["metadata"], body.get("status") or {}
    return PodSeen(
        key=key_of(meta.get("labels") or {}),
        uid=meta["uid"],
        name=meta["name"],
        node=(body.get("spec") or {}).get("nodeName", ""),
        over=status.get("phase") in _OVER,
        placed=bool(status.get("podIP")),
        started=_started(status),
        leaving="deletionTimestamp" in meta,
        cause=cause_of(status),
        fence_after=_fence_after(meta.get("annotations") or {}),
    )


def _fence_after(annotations: Body) -> float:
    """An agent that was told 0 never ends by itself."""
    try:
        return float(annotations[FENCE_AFTER]) or math.inf
    except (KeyError, ValueError):
        return 0.0


def _started(status: Body) -> bool:
    states = [c.get("state") or {} for c in status.get("containerStatuses") or ()]
    return any("running" in s or _ran(s.get("terminated")) for s in states)


def _ran(ended: Body | None) -> bool:
    return ended is not None and ended.get("reason") not in _NEVER_RAN


_NEVER_RAN = ("StartError", "ContainerCannotRun", "ContainerStatusUnknown")

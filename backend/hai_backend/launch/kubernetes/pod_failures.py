"""Explains to users why a pod does not run or has ended.

The keys of the tables are what Kubernetes reports: reasons of pods, of containers, and of warning Events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from hai_backend.kube_cache.source import Body


class CauseKind(Enum):
    """What caused the failure. It determines whether another try may succeed."""

    TASK = auto()  # the task or the settings; it would fail again on every node
    NODE = auto()  # the node; the task may run on another one
    TASK_ON_NODE = auto()  # the combination of task and node; other tasks may run on the node
    TRANSIENT = auto()  # the failure may resolve itself; it counts only if it lasts
    TERMINATED = auto()  # no failure to start; the pod ran and was terminated


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason why a pod does not run or has ended. `text` is a sentence for users."""

    kind: CauseKind
    text: str


_Sentence = Callable[[str], str]  # the cluster's message -> our sentence


def _with_detail(text: str) -> _Sentence:
    return lambda message: f"{text}: {_short(message)}" if message else text


_WAITING: Mapping[str, tuple[CauseKind, str]] = {
    "InvalidImageName": (CauseKind.TASK, "the image's name is not valid"),
    "ErrImageNeverPull": (CauseKind.TASK, "the image is not on the node, and may not be pulled"),
    "ImagePullBackOff": (CauseKind.TASK, "the image cannot be pulled"),
    "ErrImagePull": (CauseKind.TRANSIENT, "the image cannot be pulled"),
    "ImageInspectError": (CauseKind.TASK, "the image on the node is broken"),
    "RegistryUnavailable": (CauseKind.TRANSIENT, "the registry of the image cannot be reached"),
    "CreateContainerConfigError": (CauseKind.TASK, "the container cannot be made"),
    "CreateContainerError": (CauseKind.TASK, "the container cannot be made"),
    "RunContainerError": (CauseKind.TASK, "the container cannot be started"),
    "CrashLoopBackOff": (CauseKind.TASK, "the container ends again and again"),
}
_PERMANENT = (
    "not found",
    "denied",
    "unauthorized",
    "forbidden",
    "does not exist",
    "manifest unknown",
)

_REJECTED: Mapping[str, tuple[CauseKind, str]] = {
    "UnexpectedAdmissionError": (CauseKind.NODE, "the node could not give it its devices"),
    "NodeAffinity": (CauseKind.NODE, "the node does not match what the pod asks for"),
    "NodeName": (CauseKind.NODE, "the node does not match what the pod asks for"),
    "NodePorts": (CauseKind.TASK_ON_NODE, "a port that it needs is in use on the node"),
    "TaintToleration": (CauseKind.NODE, "the node has a taint that tasks do not tolerate"),
    "TopologyAffinityError": (
        CauseKind.TASK_ON_NODE,
        "the node cannot place its CPUs and GPUs together",
    ),
    "AppArmor": (CauseKind.NODE, "the node has no such AppArmor profile"),
    "SysctlForbidden": (CauseKind.TASK, "the node forbids a kernel setting that it asks for"),
    "PodOSNotSupported": (CauseKind.NODE, "the node runs another operating system"),
    "SupplementalGroupsPolicyNotSupported": (
        CauseKind.NODE,
        "the node's container runtime is too old for strict groups (an operator can set strict_groups = false)",
    ),
    "Evicted": (CauseKind.TERMINATED, "the node ran out of something, and ended it"),
    "Preempting": (CauseKind.TERMINATED, "the node needed its room for a critical pod"),
    "Terminated": (CauseKind.TERMINATED, "the node was shut down"),
    "NodeShutdown": (CauseKind.TERMINATED, "the node was shut down"),
    "Shutdown": (CauseKind.TERMINATED, "the node was shut down"),
    "NodeLost": (CauseKind.TERMINATED, "the node was lost"),
    "DeadlineExceeded": (CauseKind.TERMINATED, "its pod was active for longer than it may"),
}
_OUT_OF = "OutOf"

_DISRUPTIONS: Mapping[str, str] = {
    "EvictionByEvictionAPI": "its pod was evicted, as when a node is drained",
    "DeletionByTaintManager": "its node got a taint that tasks do not tolerate",
    "DeletionByPodGC": "its node was removed from the cluster",
    "TerminationByKubelet": "its node ended it",
    "PreemptionByScheduler": "its pod gave way to a more important one",
}

_WARNINGS: Mapping[str, str] = {
    "FailedMount": "a volume cannot be mounted",
    "FailedAttachVolume": "a volume cannot be attached to the node",
    "FailedMapVolume": "a volume cannot be attached to the node",
    "FailedCreatePodSandBox": "the node cannot make the pod's sandbox",
    "FailedCreatePodContainer": "the node cannot make the pod's container",
    "NetworkNotReady": "the network of the node is not ready",
    "FailedScheduling": "no node takes it",
    "FailedPreparingDynamicResources": "the node could not prepare its devices",
    "Failed": "the container cannot be made",
    "InspectFailed": "the image on the node is broken",
}
_PULLS = ("Failed to pull image", "Error: ErrImagePull", "Error: ImagePullBackOff")


def cause_of(status: Body) -> Cause | None:
    """Return the reason why a pod with this status does not run or has ended; None if the status shows no failure."""
    return next(_causes(status), None)


def cause_of_event(event: Body) -> Cause | None:
    """Return the cause that a warning Event of a pod reports, which is always transient; None for other events."""
    reason, message = event.get("reason", ""), event.get("message", "")
    text = _WARNINGS.get(reason)
    if text is None or event.get("type") != "Warning":
        return None
    if reason == "Failed" and message.startswith(_PULLS):  # Failed is also used for containers
        text = "the image cannot be pulled"
    return Cause(CauseKind.TRANSIENT, _with_detail(text)(message))


def _causes(status: Body) -> Iterator[Cause]:
    rows = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    yield from _rejected(status)
    for i, row in enumerate(rows):
        yield from _terminated(row, init=i < len(status.get("initContainerStatuses") or ()))
    for row in rows:
        yield from _waiting(row)
    yield from _unscheduled(status)


def _rejected(status: Body) -> Iterator[Cause]:
    """Yield the causes if the node refused the pod or the cluster terminates it."""
    reason, message = status.get("reason", ""), status.get("message", "")
    if status.get("phase") == "Failed":
        if reason.startswith(_OUT_OF):
            resource = reason.removeprefix(_OUT_OF)
            yield Cause(CauseKind.NODE, _with_detail(f"the node has no room ({resource})")(message))
        elif reason in _REJECTED:
            kind, text = _REJECTED[reason]
            yield Cause(kind, _with_detail(text)(message))
    for row in status.get("conditions") or ():
        disrupted = row["type"] == "DisruptionTarget" and row["status"] == "True"
        if disrupted and row.get("reason") in _DISRUPTIONS:
            yield Cause(CauseKind.TERMINATED, _DISRUPTIONS[row["reason"]])


def _terminated(row: Body, *, init: bool) -> Iterator[Cause]:
    """Yield the cause if a container has terminated with an error."""
    state = (row.get("state") or {}).get("terminated")
    if not state or state.get("exitCode") == 0:
        return
    reason, message = state.get("reason", ""), state.get("message", "")
    if init:
        code = state.get("exitCode")
        yield Cause(
            CauseKind.TASK,
            _with_detail(f"the agent could not be brought in (exit code {code})")(message),
        )
    elif reason in ("StartError", "ContainerCannotRun"):
        yield Cause(CauseKind.TASK, _with_detail("the container cannot be started")(message))
    elif reason == "OOMKilled":
        yield Cause(CauseKind.TERMINATED, "it used more memory than it may, and was killed")
    elif reason != "ContainerStatusUnknown":
        yield Cause(
            CauseKind.TERMINATED,
            _with_detail(f"its agent ended with code {state.get('exitCode')}")(message),
        )


def _waiting(row: Body) -> Iterator[Cause]:
    """Yield the cause if a container cannot start. The message decides whether a transient cause is permanent."""
    waiting = (row.get("state") or {}).get("waiting") or {}
    entry = _WAITING.get(waiting.get("reason", ""))
    if entry is None:
        return
    kind, text = entry
    message = waiting.get("message", "")
    if kind is CauseKind.TRANSIENT and any(hint in message.lower() for hint in _PERMANENT):
        kind = CauseKind.TASK
    yield Cause(
        kind, _with_detail(f"{text} ({row.get('image')})" if "image" in text else text)(message)
    )


def _unscheduled(status: Body) -> Iterator[Cause]:
    for row in status.get("conditions") or ():
        unscheduled = row["type"] == "PodScheduled" and row["status"] == "False"
        if unscheduled and row.get("reason") == "Unschedulable":
            yield Cause(CauseKind.NODE, _with_detail("no node takes it")(row.get("message", "")))


def _short(message: str) -> str:
    """Return the message as one line of at most 300 characters."""
    line = " ".join(message.split())
    return line if len(line) <= 300 else f"{line[:300]}…"

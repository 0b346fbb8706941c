"""Why a pod does not run, or no longer, in words that a user understands. A table; tests go through it row by row.

What the cluster calls it stands on the left: reasons of pods, of their containers, and of warning Events about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from hai_backend.watch.source import Body


class Fault(Enum):
    """Whose it is, and so what helps."""

    TASK = auto()  # the task's, or the operators': started again it fails again
    ROOM = auto()  # the node's: elsewhere it may run
    HERE = auto()  # of this task on this node: others may well run there
    LATER = auto()  # may pass by itself: counts when it lasts
    END = auto()  # it ran, and was ended


@dataclass(frozen=True, slots=True)
class Cause:
    """A sentence for the user."""

    fault: Fault
    words: str


_Words = Callable[[str], str]  # the cluster's message -> our sentence


def _told(words: str) -> _Words:
    return lambda message: f"{words}: {_short(message)}" if message else words


_WAITING: Mapping[str, tuple[Fault, str]] = {
    "InvalidImageName": (Fault.TASK, "the image's name is not valid"),
    "ErrImageNeverPull": (Fault.TASK, "the image is not on the node, and may not be pulled"),
    "ImagePullBackOff": (Fault.TASK, "the image cannot be pulled"),
    "ErrImagePull": (Fault.LATER, "the image cannot be pulled"),
    "ImageInspectError": (Fault.TASK, "the image on the node is broken"),
    "RegistryUnavailable": (Fault.LATER, "the registry of the image cannot be reached"),
    "CreateContainerConfigError": (Fault.TASK, "the container cannot be made"),
    "CreateContainerError": (Fault.TASK, "the container cannot be made"),
    "RunContainerError": (Fault.TASK, "the container cannot be started"),
    "CrashLoopBackOff": (Fault.TASK, "the container ends again and again"),
}
_NOT_THERE = (
    "not found",
    "denied",
    "unauthorized",
    "forbidden",
    "does not exist",
    "manifest unknown",
)

_REFUSED: Mapping[str, tuple[Fault, str]] = {
    "UnexpectedAdmissionError": (Fault.ROOM, "the node could not give it its devices"),
    "NodeAffinity": (Fault.ROOM, "the node does not match what the pod asks for"),
    "NodeName": (Fault.ROOM, "the node does not match what the pod asks for"),
    "NodePorts": (Fault.HERE, "a port that it needs is in use on the node"),
    "TaintToleration": (Fault.ROOM, "the node has a taint that tasks do not tolerate"),
    "TopologyAffinityError": (Fault.HERE, "the node cannot place its CPUs and GPUs together"),
    "AppArmor": (Fault.ROOM, "the node has no such AppArmor profile"),
    "SysctlForbidden": (Fault.TASK, "the node forbids a kernel setting that it asks for"),
    "PodOSNotSupported": (Fault.ROOM, "the node runs another operating system"),
    "SupplementalGroupsPolicyNotSupported": (
        Fault.ROOM,
        "the node's container runtime is too old for strict groups (an operator can set strict_groups = false)",
    ),
    "Evicted": (Fault.END, "the node ran out of something, and ended it"),
    "Preempting": (Fault.END, "the node needed its room for a critical pod"),
    "Terminated": (Fault.END, "the node was shut down"),
    "NodeShutdown": (Fault.END, "the node was shut down"),
    "Shutdown": (Fault.END, "the node was shut down"),
    "NodeLost": (Fault.END, "the node was lost"),
    "DeadlineExceeded": (Fault.END, "its pod was active for longer than it may"),
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
    """What is wrong with a pod that says this of itself; None when nothing is."""
    return next(_causes(status), None)


def cause_of_event(event: Body) -> Cause | None:
    """What a warning about a pod says; it may pass, so it counts only when the pod does not start for long."""
    reason, message = event.get("reason", ""), event.get("message", "")
    words = _WARNINGS.get(reason)
    if words is None or event.get("type") != "Warning":
        return None
    if reason == "Failed" and message.startswith(_PULLS):  # a kubelet has one reason for both
        words = "the image cannot be pulled"
    return Cause(Fault.LATER, _told(words)(message))


def _causes(status: Body) -> Iterator[Cause]:
    rows = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    yield from _refused(status)
    for i, row in enumerate(rows):
        yield from _ended(row, init=i < len(status.get("initContainerStatuses") or ()))
    for row in rows:
        yield from _waiting(row)
    yield from _unscheduled(status)


def _refused(status: Body) -> Iterator[Cause]:
    """The node did not take the pod, or gave it up."""
    reason, message = status.get("reason", ""), status.get("message", "")
    if status.get("phase") == "Failed":
        if reason.startswith(_OUT_OF):
            what = reason.removeprefix(_OUT_OF)
            yield Cause(Fault.ROOM, _told(f"the node has no room ({what})")(message))
        elif reason in _REFUSED:
            fault, words = _REFUSED[reason]
            yield Cause(fault, _told(words)(message))
    for row in status.get("conditions") or ():
        disrupted = row["type"] == "DisruptionTarget" and row["status"] == "True"
        if disrupted and row.get("reason") in _DISRUPTIONS:
            yield Cause(Fault.END, _DISRUPTIONS[row["reason"]])


def _ended(row: Body, *, init: bool) -> Iterator[Cause]:
    ended = (row.get("state") or {}).get("terminated")
    if not ended or ended.get("exitCode") == 0:
        return
    reason, message = ended.get("reason", ""), ended.get("message", "")
    if init:
        code = ended.get("exitCode")
        yield Cause(
            Fault.TASK, _told(f"the agent could not be brought in (exit code {code})")(message)
        )
    elif reason in ("StartError", "ContainerCannotRun"):
        yield Cause(Fault.TASK, _told("the container cannot be started")(message))
    elif reason == "OOMKilled":
        yield Cause(Fault.END, "it used more memory than it may, and was killed")
    elif reason != "ContainerStatusUnknown":
        yield Cause(Fault.END, _told(f"its agent ended with code {ended.get('exitCode')}")(message))


def _waiting(row: Body) -> Iterator[Cause]:
    waiting = (row.get("state") or {}).get("waiting") or {}
    found = _WAITING.get(waiting.get("reason", ""))
    if found is None:
        return
    fault, words = found
    message = waiting.get("message", "")
    if fault is Fault.LATER and any(hint in message.lower() for hint in _NOT_THERE):
        fault = Fault.TASK
    yield Cause(
        fault, _told(f"{words} ({row.get('image')})" if "image" in words else words)(message)
    )


def _unscheduled(status: Body) -> Iterator[Cause]:
    for row in status.get("conditions") or ():
        late = row["type"] == "PodScheduled" and row["status"] == "False"
        if late and row.get("reason") == "Unschedulable":
            yield Cause(Fault.ROOM, _told("no node takes it")(row.get("message", "")))


def _short(message: str) -> str:
    """One line, and not a page of it."""
    line = " ".join(message.split())
    return line if len(line) <= 300 else f"{line[:300]}…"

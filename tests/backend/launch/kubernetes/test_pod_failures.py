"""The explanations for users of why a pod does not run."""

from __future__ import annotations

from typing import Any

import pytest

from hai_backend.launch.kubernetes.pod_failures import Cause, CauseKind, cause_of, cause_of_event


def waiting(reason: str, message: str = "", image: str = "r.io/a:1") -> dict[str, Any]:
    row = {"image": image, "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Pending", "containerStatuses": [row]}


def ended(code: int, reason: str = "Error", message: str = "", *, init: bool = False) -> Any:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    rows = "initContainerStatuses" if init else "containerStatuses"
    return {"phase": "Failed", rows: [{"image": "r.io/a:1", "state": state}]}


def failed(reason: str, message: str = "") -> dict[str, Any]:
    return {"phase": "Failed", "reason": reason, "message": message}


def disrupted(reason: str) -> dict[str, Any]:
    row = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {"phase": "Running", "conditions": [row]}


NO_ROOM = "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8"
TASK, NODE, TRANSIENT, TERMINATED = (
    CauseKind.TASK,
    CauseKind.NODE,
    CauseKind.TRANSIENT,
    CauseKind.TERMINATED,
)
TABLE = [
    pytest.param(waiting("ContainerCreating"), None, "", id="it is being made"),
    pytest.param({"phase": "Running"}, None, "", id="it runs"),
    pytest.param(ended(0, "Completed"), None, "", id="it succeeded"),
    pytest.param(
        waiting("ErrImagePull", "rpc error: dial tcp: i/o timeout"),
        *(TRANSIENT, "the image cannot be pulled (r.io/a:1): rpc error: dial tcp: i/o timeout"),
        id="a registry that hesitates",
    ),
    pytest.param(
        waiting("ErrImagePull", "manifest unknown: not found"),
        *(TASK, "the image cannot be pulled (r.io/a:1): manifest unknown: not found"),
        id="an image that is not there",
    ),
    pytest.param(
        waiting("ErrImagePull", "pull access denied"),
        *(TASK, "the image cannot be pulled (r.io/a:1): pull access denied"),
        id="an image that is not ours to pull",
    ),
    pytest.param(
        waiting("ImagePullBackOff", 'Back-off pulling image "r.io/a:1"'),
        *(TASK, 'the image cannot be pulled (r.io/a:1): Back-off pulling image "r.io/a:1"'),
        id="it was tried again",
    ),
    pytest.param(
        waiting("InvalidImageName"), TASK, "the image's name is not valid (r.io/a:1)", id="bad name"
    ),
    pytest.param(
        waiting("ErrImageNeverPull"),
        *(TASK, "the image is not on the node, and may not be pulled (r.io/a:1)"),
        id="never pulled",
    ),
    pytest.param(
        waiting("CreateContainerConfigError", 'secret "x" not found'),
        *(TASK, 'the container cannot be made: secret "x" not found'),
        id="a secret is missing",
    ),
    pytest.param(
        waiting("RunContainerError", "exec: no such file"),
        *(TASK, "the container cannot be started: exec: no such file"),
        id="the runtime refuses",
    ),
    pytest.param(
        failed("OutOfnvidia.com/gpu", NO_ROOM),
        *(NODE, f"the node has no room (nvidia.com/gpu): {NO_ROOM}"),
        id="no GPUs are left",
    ),
    pytest.param(failed("OutOfcpu"), NODE, "the node has no room (cpu)", id="no CPUs are left"),
    pytest.param(
        failed("UnexpectedAdmissionError", "Allocate failed due to no healthy devices"),
        NODE,
        "the node could not give it its devices: Allocate failed due to no healthy devices",
        id="the device plugin fails",
    ),
    pytest.param(
        failed("TaintToleration"),
        *(NODE, "the node has a taint that tasks do not tolerate"),
        id="a taint",
    ),
    pytest.param(
        failed("Evicted", "The node was low on resource: memory."),
        *(
            TERMINATED,
            "the node ran out of something, and ended it: The node was low on resource: memory.",
        ),
        id="evicted by the kubelet",
    ),
    pytest.param(
        ended(137, "OOMKilled"),
        TERMINATED,
        "it used more memory than it may, and was killed",
        id="memory",
    ),
    pytest.param(
        ended(1, "Error", "Traceback\n  boom"),
        *(TERMINATED, "its agent ended with code 1: Traceback boom"),
        id="the agent breaks",
    ),
    pytest.param(
        ended(128, "StartError", "exec format error"),
        *(TASK, "the container cannot be started: exec format error"),
        id="no program for this machine",
    ),
    pytest.param(
        ended(1, "Error", "cp: no space left", init=True),
        *(TASK, "the agent could not be brought in (exit code 1): cp: no space left"),
        id="the init container fails",
    ),
    pytest.param(
        disrupted("EvictionByEvictionAPI"),
        *(TERMINATED, "its pod was evicted, as when a node is drained"),
        id="drained",
    ),
    pytest.param(
        disrupted("DeletionByPodGC"),
        TERMINATED,
        "its node was removed from the cluster",
        id="no node",
    ),
    pytest.param(failed("NodeShutdown"), TERMINATED, "the node was shut down", id="shut down"),
]


@pytest.mark.parametrize(("status", "kind", "text"), TABLE)
def test_why_the_status_of_a_pod_says_that_it_does_not_run(
    status: dict[str, Any], kind: CauseKind | None, text: str
) -> None:
    assert cause_of(status) == (None if kind is None else Cause(kind, text))


@pytest.mark.parametrize(
    ("reason", "kind", "text"),
    [
        pytest.param("FailedMount", "Warning", "a volume cannot be mounted: why", id="mount"),
        pytest.param("FailedCreatePodSandBox", "Warning", "the node cannot make the pod's sandbox: why", id="sandbox"),
        pytest.param("NetworkNotReady", "Warning", "the network of the node is not ready: why", id="network"),
        pytest.param("Unhealthy", "Warning", None, id="of no concern"),
        pytest.param("FailedMount", "Normal", None, id="no warning"),
    ],
)  # fmt: skip
def test_which_warnings_are_causes(reason: str, kind: str, text: str | None) -> None:
    event = {"reason": reason, "type": kind, "message": "why"}
    assert cause_of_event(event) == (text and Cause(TRANSIENT, text))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param('Failed to pull image "a:1": not found', "the image cannot be pulled", id="pull"),
        pytest.param("Error: ErrImagePull", "the image cannot be pulled", id="pull again"),
        pytest.param("Error: ImagePullBackOff", "the image cannot be pulled", id="pull later"),
        pytest.param("Error: no such mount", "the container cannot be made", id="make"),
    ],
)  # fmt: skip
def test_a_kubelet_has_one_reason_for_images_and_containers(message: str, text: str) -> None:
    event = {"reason": "Failed", "type": "Warning", "message": message}
    assert cause_of_event(event) == Cause(TRANSIENT, f"{text}: {message}")


def test_a_page_of_words_is_cut() -> None:
    cause = cause_of(failed("Evicted", "x" * 1000))
    assert cause is not None
    assert len(cause.text) < 400

"""Access of the contract tests to a fake or real cluster: the official client, pods, and waits."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

_SECONDS = 90.0


@dataclass
class Kube:
    """The namespace of one test, and clients for it."""

    api: client.ApiClient
    namespace: str
    image: str
    kubeconfig: Path

    def __post_init__(self) -> None:
        # Any, because the client accepts dictionaries for its models, but its annotations do not.
        self.core: Any = client.CoreV1Api(self.api)
        self.apps: Any = client.AppsV1Api(self.api)
        self.policy: Any = client.PolicyV1Api(self.api)
        self.leases: Any = client.CoordinationV1Api(self.api)

    def pod(self, name: str = "", command: str = "exit 0", **spec: Any) -> dict[str, Any]:
        """Return a pod that runs a shell command. It is not scheduled if `schedulerName` names no scheduler."""
        row = {"name": "main", "image": self.image, "command": ["/bin/sh", "-c", command]}
        row |= {"imagePullPolicy": "IfNotPresent"}
        body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, **spec}
        body["containers"] = [{**row, **c} for c in spec.get("containers", [{}])]
        inits = [{**row, **c} for c in spec.get("initContainers", [])]
        if inits:
            body["initContainers"] = inits
        meta = {"name": name} if name else {"generateName": "p-"}
        return {"metadata": meta, "spec": body}

    def idle(self, name: str = "", **spec: Any) -> dict[str, Any]:
        """Return a pod that no scheduler schedules."""
        return self.pod(name, **({"schedulerName": "nobody"} | spec))

    def create(self, body: dict[str, Any]) -> Any:
        return self.core.create_namespaced_pod(self.namespace, body)

    def read(self, name: str) -> Any:
        try:
            return self.core.read_namespaced_pod(name, self.namespace)
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def node(self) -> str:
        """Return the name of a node without taints."""
        found = self.core.list_node().items
        return str(next(n.metadata.name for n in found if not n.spec.taints))

    def until(self, name: str, so: Callable[[Any], object]) -> Any:
        """Wait until `so` is true for a pod, and return the pod."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            pod = self.core.read_namespaced_pod(name, self.namespace)
            if so(pod):
                return pod
            _breathe()
        raise AssertionError(f"it never came true of {name}: {pod.status}")

    def phase(self, name: str, *phases: str) -> Any:
        return self.until(name, lambda pod: pod.status.phase in phases)

    def gone(self, name: str) -> float:
        """Wait until a pod does not exist any more, and return the seconds that this took."""
        began = time.monotonic()
        while self.read(name) is not None:
            assert time.monotonic() < began + _SECONDS, f"{name} is still there"
            _breathe()
        return time.monotonic() - began

    def log(self, name: str, **query: Any) -> str:
        """Return the log of a pod. It is empty where the client returns None."""
        return self.core.read_namespaced_pod_log(name, self.namespace, **query) or ""

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace. The client's own method expects a Status, but servers return the namespace."""
        self.ask("DELETE", f"/api/v1/namespaces/{name}")

    def ask(self, method: str, path: str, body: Any = None, form: str = "application/json") -> Any:
        """Send a request with the credentials of the kubeconfig, and return the parsed response."""
        headers = {"Content-Type": form, "Accept": "application/json"}
        call = self.api.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        answer: Any = self.api.call_api(*call)
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text)

    def kubectl(self, *words: str, given: str = "") -> str:
        """Run kubectl and return its output. Raises AssertionError if it fails."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.kubeconfig.parent)}
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_SECONDS, env=environment
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


def _breathe() -> None:
    """Sleep between two polls. The official client cannot wait for a change that may already have happened."""
    time.sleep(0.02)


@contextmanager
def cluster_client(kubeconfig: Path) -> Iterator[client.ApiClient]:
    """The official client; at the end its connections are closed."""
    api: client.ApiClient = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
    try:
        yield api
    finally:
        api.close()  # type: ignore[no-untyped-call]
        api.rest_client.pool_manager.clear()


@contextmanager
def own_namespace(api: client.ApiClient, image: str, kubeconfig: Path) -> Iterator[Kube]:
    """A namespace that goes with everything in it."""
    kube = Kube(api, f"hai-test-{uuid.uuid4().hex[:8]}", image, kubeconfig)
    kube.core.create_namespace({"metadata": {"name": kube.namespace}})
    _wait_for_account(kube)
    try:
        yield kube
    finally:
        kube.core.delete_collection_namespaced_pod(kube.namespace, grace_period_seconds=0)
        kube.delete_namespace(kube.namespace)


def _wait_for_account(kube: Kube) -> None:
    deadline = time.monotonic() + _SECONDS
    while not kube.core.list_namespaced_service_account(kube.namespace).items:
        assert time.monotonic() < deadline
        _breathe()

"""The StatefulSet controller, which creates numbered pods in parallel, and updates them one after the other.

To add it to a cluster: `cluster = FakeCluster(custom=[STATEFULSETS]); StatefulSets(cluster.api)`.
"""

from __future__ import annotations

import hashlib
import json

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.store import Change, StoredObject

STATEFULSETS = Resource(
    *("apps", "v1", "statefulsets", "StatefulSet"),
    short=("sts",),
    subresources=("status",),
    counted=True,
    in_all=True,
)
_REVISION = "controller-revision-hash"
_MERGE = "application/merge-patch+json"


class StatefulSets:
    """Behaves as the real controller does with podManagementPolicy Parallel."""

    def __init__(self, api: Api) -> None:
        self._api = api
        api.store.listen(STATEFULSETS, self._on_set_change)
        api.store.listen(api.resources["pods"], self._on_pod_change)

    def _on_set_change(self, change: Change) -> None:
        if change.type != "DELETED":
            self._sync(change.stored)

    def _on_pod_change(self, change: Change) -> None:
        owners = change.stored.body["metadata"].get("ownerReferences") or [{}]
        if owners[0].get("kind") == "StatefulSet":
            owner = self._api.get("statefulsets", change.stored.namespace, owners[0]["name"])
            if owner is not None:
                self._sync(owner)

    def _sync(self, observed: StoredObject) -> None:
        stateful_set = self._api.latest(observed)
        if stateful_set is None or stateful_set.deleting:
            return
        revision = _revision(stateful_set.body)
        pods = self._pods(stateful_set)
        for number in range(stateful_set.body["spec"]["replicas"]):
            if number not in pods:
                self._create_pod(stateful_set, number, revision)
        self._update_pods(stateful_set, pods, revision)
        self._report_status(stateful_set, pods, revision)

    def _pods(self, stateful_set: StoredObject) -> dict[int, StoredObject]:
        pods = self._api.store.sorted_objects(self._api.resources["pods"])
        prefix = f"{stateful_set.name}-"
        return {
            int(pod.name.removeprefix(prefix)): pod
            for pod in pods
            if pod.namespace == stateful_set.namespace
            and pod.name.startswith(prefix)
            and pod.name.removeprefix(prefix).isdecimal()
        }

    def _create_pod(self, stateful_set: StoredObject, number: int, revision: str) -> None:
        template = stateful_set.body["spec"]["template"]
        meta = template["metadata"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": stateful_set.name}
        body = {
            "metadata": {
                "name": f"{stateful_set.name}-{number}",
                "labels": {**meta["labels"], _REVISION: revision},
                "ownerReferences": [{**owner, "uid": stateful_set.uid, "controller": True}],
            },
            "spec": {**template["spec"], "volumes": self._pod_volumes(stateful_set, number)},
        }
        self._api.writes.create(self._api.resources["pods"], stateful_set.namespace, body)

    def _pod_volumes(self, stateful_set: StoredObject, number: int) -> list[Body]:
        """Return the volumes of the template and of the pod's claims. Create missing claims, which outlive the pod."""
        spec = stateful_set.body["spec"]
        volumes = list(spec["template"]["spec"].get("volumes") or [])
        for claim in spec.get("volumeClaimTemplates") or []:
            name = f"{claim['metadata']['name']}-{stateful_set.name}-{number}"
            labels = spec["selector"]["matchLabels"]
            body = {"metadata": {"name": name, "labels": labels}, "spec": claim["spec"]}
            if self._api.get("persistentvolumeclaims", stateful_set.namespace, name) is None:
                claims = self._api.resources["persistentvolumeclaims"]
                self._api.writes.create(claims, stateful_set.namespace, body)
            claim_source = {"persistentVolumeClaim": {"claimName": name}}
            volumes.append({"name": claim["metadata"]["name"], **claim_source})
        return volumes

    def _update_pods(
        self, stateful_set: StoredObject, pods: dict[int, StoredObject], revision: str
    ) -> None:
        """Delete pods that exceed the replicas, and, if all pods are ready, the last pod of an old revision."""
        for number, pod in pods.items():
            if number >= stateful_set.body["spec"]["replicas"] and not pod.deleting:
                self._api.deletes.delete_if_current(pod)
        old = [number for number, pod in pods.items() if _revision_of(pod) != revision]
        if old and all(map(_is_ready, pods.values())):
            self._api.deletes.delete_if_current(pods[max(old)])

    def _report_status(
        self, stateful_set: StoredObject, pods: dict[int, StoredObject], revision: str
    ) -> None:
        updated = len(pods) > 0 and all(_revision_of(pod) == revision for pod in pods.values())
        current_revision = dig(stateful_set.body, "status.currentRevision") or revision
        status = {
            "observedGeneration": stateful_set.body["metadata"].get("generation", 1),
            "replicas": len(pods),
            "readyReplicas": sum(map(_is_ready, pods.values())),
            "updatedReplicas": sum(_revision_of(pod) == revision for pod in pods.values()),
            "updateRevision": revision,
            "currentRevision": revision if updated else current_revision,
        }
        patch = json.dumps({"status": status}).encode()
        self._api.writes.patch(
            *(STATEFULSETS, stateful_set.namespace, stateful_set.name, _MERGE, patch),
            subresource="status",
        )


def _revision(body: Body) -> str:
    template = json.dumps(body["spec"]["template"], sort_keys=True)
    return hashlib.sha256(template.encode()).hexdigest()[:10]


def _revision_of(pod: StoredObject) -> str:
    return str(pod.body["metadata"]["labels"].get(_REVISION))


def _is_ready(pod: StoredObject) -> bool:
    conditions = dig(pod.body, "status.conditions") or []
    return not pod.deleting and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )

"""StatefulSets and their controller: pods with numbers, made together, replaced one after the other.

cluster = FakeCluster(custom=[STATEFULSETS]); StatefulSets(cluster.api)
"""

from __future__ import annotations

import hashlib
import json

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.store import Change, Stored

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
    """Does for them what the real controller does with podManagementPolicy Parallel."""

    def __init__(self, api: Api) -> None:
        self._api = api
        api.store.listen(STATEFULSETS, self._hear)
        api.store.listen(api.resources["pods"], self._hear_pod)

    def _hear(self, change: Change) -> None:
        if change.type != "DELETED":
            self._sync(change.stored)

    def _hear_pod(self, change: Change) -> None:
        owners = change.stored.body["metadata"].get("ownerReferences") or [{}]
        if owners[0].get("kind") == "StatefulSet":
            owner = self._api.get("statefulsets", change.stored.namespace, owners[0]["name"])
            if owner is not None:
                self._sync(owner)

    def _sync(self, known: Stored) -> None:
        wanted = self._api.latest(known)
        if wanted is None or wanted.deleting:
            return
        wish = _revision(wanted.body)
        pods = self._pods(wanted)
        for number in range(wanted.body["spec"]["replicas"]):
            if number not in pods:
                self._make(wanted, number, wish)
        self._replace(wanted, pods, wish)
        self._tell(wanted, pods, wish)

    def _pods(self, wanted: Stored) -> dict[int, Stored]:
        found = self._api.store.everything(self._api.resources["pods"])
        prefix = f"{wanted.name}-"
        return {
            int(pod.name.removeprefix(prefix)): pod
            for pod in found
            if pod.namespace == wanted.namespace
            and pod.name.startswith(prefix)
            and pod.name.removeprefix(prefix).isdecimal()
        }

    def _make(self, wanted: Stored, number: int, revision: str) -> None:
        template = wanted.body["spec"]["template"]
        meta = template["metadata"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": wanted.name}
        body = {
            "metadata": {
                "name": f"{wanted.name}-{number}",
                "labels": {**meta["labels"], _REVISION: revision},
                "ownerReferences": [{**owner, "uid": wanted.uid, "controller": True}],
            },
            "spec": {**template["spec"], "volumes": self._volumes(wanted, number)},
        }
        self._api.writes.create(self._api.resources["pods"], wanted.namespace, body)

    def _volumes(self, wanted: Stored, number: int) -> list[Body]:
        """Those of the template, and claims of the pod's own, which outlive it."""
        spec = wanted.body["spec"]
        volumes = list(spec["template"]["spec"].get("volumes") or [])
        for claim in spec.get("volumeClaimTemplates") or []:
            name = f"{claim['metadata']['name']}-{wanted.name}-{number}"
            labels = spec["selector"]["matchLabels"]
            body = {"metadata": {"name": name, "labels": labels}, "spec": claim["spec"]}
            if self._api.get("persistentvolumeclaims", wanted.namespace, name) is None:
                claims = self._api.resources["persistentvolumeclaims"]
                self._api.writes.create(claims, wanted.namespace, body)
            mounted = {"persistentVolumeClaim": {"claimName": name}}
            volumes.append({"name": claim["metadata"]["name"], **mounted})
        return volumes

    def _replace(self, wanted: Stored, pods: dict[int, Stored], wish: str) -> None:
        """Those that are too many at once; of old ones the last, once all others are ready."""
        for number, pod in pods.items():
            if number >= wanted.body["spec"]["replicas"] and not pod.deleting:
                self._api.deletes.end(pod)
        old = [number for number, pod in pods.items() if _label(pod) != wish]
        if old and all(map(_ready, pods.values())):
            self._api.deletes.end(pods[max(old)])

    def _tell(self, wanted: Stored, pods: dict[int, Stored], wish: str) -> None:
        done = len(pods) > 0 and all(_label(pod) == wish for pod in pods.values())
        before = dig(wanted.body, "status.currentRevision") or wish
        status = {
            "observedGeneration": wanted.body["metadata"].get("generation", 1),
            "replicas": len(pods),
            "readyReplicas": sum(map(_ready, pods.values())),
            "updatedReplicas": sum(_label(pod) == wish for pod in pods.values()),
            "updateRevision": wish,
            "currentRevision": wish if done else before,
        }
        patch = json.dumps({"status": status}).encode()
        self._api.writes.patch(
            *(STATEFULSETS, wanted.namespace, wanted.name, _MERGE, patch), part="status"
        )


def _revision(body: Body) -> str:
    template = json.dumps(body["spec"]["template"], sort_keys=True)
    return hashlib.sha256(template.encode()).hexdigest()[:10]


def _label(pod: Stored) -> str:
    return str(pod.body["metadata"]["labels"].get(_REVISION))


def _ready(pod: Stored) -> bool:
    conditions = dig(pod.body, "status.conditions") or []
    return not pod.deleting and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )

"""Sets the defaults of new objects, including those of admission plugins."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from random import Random

from hai_backend.testing.kube.body import (
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    Body,
    dig,
    quantity,
    revised,
    stamp,
)
from hai_backend.testing.kube.resources import Resource


def new_pod(body: Body) -> Body:
    """Return a new pod with its defaults."""
    spec = {**_POD_SPEC, **(body.get("spec") or {})}
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [_container(c) for c in spec[part]]
    spec["volumes"] = [_volume(v) for v in spec.get("volumes") or []]
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    spec.setdefault("priority", 0)
    status = {"phase": "Pending", "qosClass": qos_class(spec)}
    return revised(body, spec=spec, status=status)


_POD_SPEC: Body = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}


def _container(container: Body) -> Body:
    image = str(container.get("image", ""))
    latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
    standard = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
    }
    return {**standard, **container, "resources": _resources(container.get("resources") or {})}


def _resources(resources: Body) -> Body:
    """Return resources in which each limit without a request is also a request."""
    if "limits" not in resources:
        return resources
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**resources, "requests": requests}


def _volume(volume: Body) -> Body:
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            return {**volume, source: {"defaultMode": 0o644, **volume[source]}}
    return volume


def _tolerations(existing: list[Body]) -> list[Body]:
    """Return the tolerations with the defaults, by which a pod tolerates an unreachable node for five minutes."""
    keys = {t.get("key") for t in existing if t.get("effect") in (None, "", "NoExecute")}
    more = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in (NOT_READY, UNREACHABLE)
        if key not in keys and None not in keys
    ]
    return [*existing, *more]


def qos_class(spec: Body) -> str:
    """Return the QoS class: Guaranteed, Burstable or BestEffort."""
    rows = [c.get("resources") or {} for c in spec.get("containers") or []]
    named_resources = [{**r.get("requests", {}), **r.get("limits", {})} for r in rows]
    if not any({"cpu", "memory"} & set(n) for n in named_resources):
        return "BestEffort"
    guaranteed = all(
        name in r.get("limits", {}) and quantity(r["limits"][name]) == quantity(r["requests"][name])
        for r in rows
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


def grace_of(pod: Body) -> int:
    """Return the grace period of the pod's spec in seconds."""
    return int(dig(pod, "spec.terminationGracePeriodSeconds", 30))


_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # without vowels, so that no words are formed
_random = Random()


def generated_name(prefix: str) -> str:
    """Return a random name for generateName."""
    return prefix + "".join(_random.choices(_LETTERS, k=5))


def with_update_defaults(resource: Resource, old: Body, new: Body) -> Body:
    """Return `new`, which replaces `old`, with old values or defaults for missing fields."""
    if resource.kind in ("Pod", "Secret", "PriorityClass"):
        return _FILL[resource.kind](new)
    if resource.kind == "Service":
        unchanged = {k: v for k, v in old["spec"].items() if k in ("clusterIP", "type")}
        return revised(new, spec={**unchanged, **(new.get("spec") or {})})
    if resource.kind == "Namespace":
        return revised(new, spec=old["spec"])
    return new


def with_create_defaults(resource: Resource, namespace: str, body: Body, now: float) -> Body:
    """Return a new object with its defaults, without the fields that a client must not set."""
    meta = dict(body.get("metadata") or {})
    for server_field in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ):
        meta.pop(server_field, None)
    for server_field in ("resourceVersion", "selfLink", "generation", "managedFields"):
        meta.pop(server_field, None)
    name = meta.pop("name", None) or generated_name(meta.get("generateName", ""))
    filled: Body = {"name": name}
    if resource.namespaced:
        filled["namespace"] = namespace
    filled |= {"uid": str(uuid.uuid4()), "creationTimestamp": stamp(now)}
    if resource.counted:
        filled["generation"] = 1
    fields = {k: v for k, v in body.items() if k not in ("kind", "apiVersion", "metadata")}
    if resource.has_status:
        fields.pop("status", None)
    made = {"metadata": {**meta, **filled}, **fields}
    fill = _FILL.get(resource.kind)
    return fill(made) if fill is not None else made


def _node(body: Body) -> Body:
    """Return a new node. It has a taint until the node controller has seen that it is ready."""
    spec = dict(body.get("spec") or {})
    taint = {"key": NOT_READY, "effect": "NoSchedule"}
    spec["taints"] = [*(spec.get("taints") or []), taint]
    if spec.get("unschedulable"):
        spec["taints"].append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    labels = {"kubernetes.io/hostname": body["metadata"]["name"], "kubernetes.io/os": "linux"}
    existing = body["metadata"].get("labels") or {}
    return revised(body, metadata={"labels": {**labels, **existing}}, spec=spec)


def _namespace(body: Body) -> Body:
    labels = {"kubernetes.io/metadata.name": body["metadata"]["name"]}
    meta = {"labels": {**(body["metadata"].get("labels") or {}), **labels}}
    spec = {"finalizers": ["kubernetes"]}
    return revised(body, metadata=meta, spec=spec, status={"phase": "Active"})


def _secret(body: Body) -> Body:
    data = dict(body.get("data") or {})
    for key, text in (body.get("stringData") or {}).items():
        data[key] = base64.b64encode(text.encode()).decode()
    made = {**body, "data": data, "type": body.get("type", "Opaque")}
    made.pop("stringData", None)
    return made if data else {k: v for k, v in made.items() if k != "data"}


def _service(body: Body) -> Body:
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **(body.get("spec") or {})}
    if spec["type"] != "ExternalName":
        spec.setdefault("clusterIP", f"10.96.{_random.randrange(256)}.{_random.randrange(1, 255)}")
    rows = spec.get("ports") or []
    spec["ports"] = [{"protocol": "TCP", "targetPort": p.get("port"), **p} for p in rows]
    return revised(body, spec=spec, status={"loadBalancer": {}})


def _claim(body: Body) -> Body:
    spec = {"volumeMode": "Filesystem", **(body.get("spec") or {})}
    return revised(body, spec=spec, status={"phase": "Pending"})


def _with_status(body: Body) -> Body:
    return {"status": {}, **body}


def _priority_class(body: Body) -> Body:
    return {"preemptionPolicy": "PreemptLowerPriority", **body, "value": body.get("value", 0)}


_FILL: dict[str, Callable[[Body], Body]] = {
    "Pod": new_pod,
    "Node": _node,
    "Namespace": _namespace,
    "Secret": _secret,
    "Service": _service,
    "PersistentVolumeClaim": _claim,
    "DaemonSet": _with_status,
    "Deployment": _with_status,
    "Job": _with_status,
    "PriorityClass": _priority_class,
}

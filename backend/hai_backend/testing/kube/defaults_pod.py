"""What a new pod is filled in with."""

from __future__ import annotations

from hai_backend.testing.kube.body import Body, dig, revised
from hai_backend.testing.kube.quantities import quantity
from hai_backend.testing.kube.taints import NOT_READY, UNREACHABLE


def new_pod(body: Body) -> Body:
    """A pod as it is stored first."""
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
    """A limit without a request is a request too."""
    if "limits" not in resources:
        return resources
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**resources, "requests": requests}


def _volume(volume: Body) -> Body:
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            return {**volume, source: {"defaultMode": 0o644, **volume[source]}}
    return volume


def _tolerations(given: list[Body]) -> list[Body]:
    """Every pod bears a node that is lost for five minutes, unless it says otherwise."""
    keys = {t.get("key") for t in given if t.get("effect") in (None, "", "NoExecute")}
    more = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in (NOT_READY, UNREACHABLE)
        if key not in keys and None not in keys
    ]
    return [*given, *more]


def qos_class(spec: Body) -> str:
    """Guaranteed, Burstable or BestEffort."""
    rows = [c.get("resources") or {} for c in spec.get("containers") or []]
    named = [{**r.get("requests", {}), **r.get("limits", {})} for r in rows]
    if not any({"cpu", "memory"} & set(n) for n in named):
        return "BestEffort"
    guaranteed = all(
        name in r.get("limits", {}) and quantity(r["limits"][name]) == quantity(r["requests"][name])
        for r in rows
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


def grace_of(pod: Body) -> int:
    """What the pod itself asks for between SIGTERM and SIGKILL."""
    return int(dig(pod, "spec.terminationGracePeriodSeconds", 30))

"""Admission of new objects. Checks namespaces and Secrets, and sets node ports and priorities."""

from __future__ import annotations

import base64
from typing import Any

from hai_backend.testing.kube.body import Body, dig, revised
from hai_backend.testing.kube.errors import ApiError, Cause, forbidden, invalid, not_found
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.store import Store

_NODE_PORTS = range(30000, 32768)
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def check_body(resource: Resource, namespace: str, body: Any) -> Body:
    """Check that a body fits the path of its request, and return it. Raises ApiError 400."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise ApiError(400, f"the body is not a {resource.kind}")
    kind, version = body.get("kind"), body.get("apiVersion")
    if (kind and kind != resource.kind) or (version and version != resource.api_version):
        message = f"the object provided is unrecognized (must be of type {resource.kind})"
        raise ApiError(400, f"{message}: {version}, Kind={kind}")
    body_namespace = (body.get("metadata") or {}).get("namespace")
    if resource.namespaced and body_namespace and body_namespace != namespace:
        message = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise ApiError(400, message)
    check_secret(resource, body)
    return body


def check_secret(resource: Resource, body: Body) -> None:
    """Raise ApiError 400 if the data of a Secret are not base64."""
    for value in (body.get("data") or {}).values() if resource.kind == "Secret" else ():
        try:
            base64.b64decode(value, validate=True)
        except (ValueError, TypeError) as error:
            raise ApiError(400, f"illegal base64 data in a Secret: {error}") from error


def check_namespace(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raise ApiError 404 if the namespace does not exist, 403 while it is being deleted."""
    if not resource.namespaced:
        return
    namespace_object = store.get(store.resources["namespaces"], "", namespace)
    if namespace_object is None:
        raise not_found(store.resources["namespaces"], namespace)
    if namespace_object.deleting:
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        message = f"namespace {namespace} is being terminated"
        row = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        raise forbidden(resource, name, why, [row])


def with_node_ports(store: Store, resource: Resource, body: Body) -> Body:
    """Return a Service with a node port for each port. Raises ApiError 422 if a requested one is in use."""
    if resource.kind != "Service" or dig(body, "spec.type") not in ("NodePort", "LoadBalancer"):
        return body
    used = {
        p.get("nodePort")
        for s in store.unsorted_objects(resource)
        for p in s.body["spec"].get("ports", [])
    }
    rows = []
    for i, port in enumerate(body["spec"]["ports"]):
        if port.get("nodePort") in used - {None}:
            why = f"Invalid value: {port['nodePort']}: provided port is already allocated"
            cause = Cause(f"spec.ports[{i}].nodePort", "FieldValueInvalid", why)
            raise invalid(resource, body["metadata"]["name"], [cause])
        free = (number for number in _NODE_PORTS if number not in used)
        rows.append({"nodePort": next(free), **port})
        used.add(rows[-1]["nodePort"])
    return revised(body, spec={**body["spec"], "ports": rows})


def with_priority(store: Store, resource: Resource, body: Body) -> Body:
    """Return a pod with the priority of its class. Raises ApiError 403 if the class does not exist."""
    class_name = dig(body, "spec.priorityClassName", "") if resource.kind == "Pod" else ""
    if not class_name:
        return body
    priority_class = store.get(store.resources["priorityclasses"], "", class_name)
    if priority_class is None and class_name not in _SYSTEM:
        name = str(body["metadata"]["name"])
        raise forbidden(resource, name, f"no PriorityClass with name {class_name} was found")
    if priority_class is None:
        value, policy = _SYSTEM[class_name], "PreemptLowerPriority"
    else:
        value, policy = priority_class.body["value"], priority_class.body["preemptionPolicy"]
    spec = {**body["spec"], "priority": value, "preemptionPolicy": policy}
    return revised(body, spec=spec)

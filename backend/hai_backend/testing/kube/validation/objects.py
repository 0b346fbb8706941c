"""Validates names, labels, owners and data of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.errors import Cause
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.validation.pods import pod_causes

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL = re.compile(rf"{_LABEL}$")
DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*$")
_PATH_NAME = re.compile(r"(?!\.\.?$)[^/%]+$")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+$")
_DNS_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_NAMED = ("Namespace", "Service")  # kinds whose names are single DNS labels
_MAX_DATA_BYTES = 1 << 20
_MAX_ANNOTATION_BYTES = 256 << 10

Causes = Iterator[Cause]


def causes(resource: Resource, body: Body) -> list[Cause]:
    """Return all validation errors of an object."""
    kind = _KINDS.get(resource.kind, _nothing)
    return [*_metadata(resource, body["metadata"]), *kind(body)]


def _metadata(resource: Resource, meta: Body) -> Causes:
    name = str(meta["name"])
    yield from _name(resource, name)
    for key, value in (meta.get("labels") or {}).items():
        yield from _key("metadata.labels", key)
        yield from _label_value("metadata.labels", value)
    annotations = meta.get("annotations") or {}
    for key in annotations:
        yield from _key("metadata.annotations", key)
    if sum(len(k) + len(str(v)) for k, v in annotations.items()) > _MAX_ANNOTATION_BYTES:
        yield Cause(
            "metadata.annotations",
            "FieldValueTooLong",
            "Too long: may not be more than 262144 bytes",
        )
    for i, owner in enumerate(meta.get("ownerReferences") or []):
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                at = f"metadata.ownerReferences[{i}].{part}"
                yield Cause(at, "FieldValueInvalid", 'Invalid value: "": must not be empty')


def _name(resource: Resource, name: str) -> Causes:
    if resource.group == "rbac.authorization.k8s.io":
        is_valid = _PATH_NAME.match(name)
    elif resource.kind in _LABEL_NAMED:
        is_valid = DNS_LABEL.match(name) if len(name) <= 63 else None
    else:
        is_valid = DNS_NAME.match(name) if len(name) <= 253 else None
    if not is_valid:
        yield Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_DNS_TEXT}')


def _key(path: str, key: str) -> Causes:
    prefix, slash, name = key.rpartition("/")
    is_valid = _QUALIFIED.match(name) and len(name) <= 63
    if not is_valid or (slash and not DNS_NAME.match(prefix)):
        message = f'Invalid value: "{key}": name part must consist of alphanumeric characters'
        yield Cause(path, "FieldValueInvalid", message)


def _label_value(path: str, value: Any) -> Causes:
    if not isinstance(value, str) or len(value) > 63 or (value and not _QUALIFIED.match(value)):
        message = f'Invalid value: "{value}": a valid label must be an empty string or consist of '
        yield Cause(path, "FieldValueInvalid", message + "alphanumeric characters, '-', '_' or '.'")


def _nothing(body: Body) -> Causes:
    yield from ()


def _data(body: Body) -> Causes:
    data = {**(body.get("data") or {}), **(body.get("binaryData") or {})}
    for key in data:
        if not _DATA_KEY.match(key) or key in (".", "..") or len(key) > 253:
            message = f'Invalid value: "{key}": a valid config key must consist of alphanumeric characters'
            yield Cause(f"data[{key}]", "FieldValueInvalid", message)
    if sum(len(str(v)) for v in data.values()) > _MAX_DATA_BYTES:
        yield Cause("data", "FieldValueTooLong", "Too long: may not be more than 1048576 bytes")


def _service(body: Body) -> Causes:
    headless = dig(body, "spec.clusterIP") == "None"
    ports = dig(body, "spec.ports", [])
    if not ports and not headless and dig(body, "spec.type") != "ExternalName":
        yield Cause("spec.ports", "FieldValueRequired", "Required value")
    for i, port in enumerate(ports):
        number = port.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            message = f"Invalid value: {number}: must be between 1 and 65535, inclusive"
            yield Cause(f"spec.ports[{i}].port", "FieldValueInvalid", message)


def _priority_class(body: Body) -> Causes:
    name, value = body["metadata"]["name"], int(body.get("value", 0))
    if name.startswith("system-"):
        message = f"Forbidden: {name} is a reserved name prefix"
        yield Cause("metadata.name", "FieldValueForbidden", message)
    if value > 1_000_000_000:
        message = "Forbidden: maximum allowed value of a user defined priority is 1000000000"
        yield Cause("value", "FieldValueForbidden", message)


_KINDS: dict[str, Callable[[Body], Causes]] = {
    "Pod": pod_causes,
    "Secret": _data,
    "ConfigMap": _data,
    "Service": _service,
    "PriorityClass": _priority_class,
}

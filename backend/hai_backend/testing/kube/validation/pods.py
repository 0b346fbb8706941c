"""Validates pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hai_backend.testing.kube.body import Body, dig, quantity
from hai_backend.testing.kube.errors import Cause

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_POLICIES = ("Always", "OnFailure", "Never")
_PULLS = ("Always", "IfNotPresent", "Never")
_OPERATORS = ("", "Exists", "Equal")
_PLAIN = ("cpu", "memory", "ephemeral-storage")


def required(path: str) -> Cause:
    return Cause(path, "FieldValueRequired", "Required value")


def unsupported(path: str, value: Any, supported: tuple[str, ...]) -> Cause:
    names = ", ".join(f'"{s}"' for s in supported if s)
    return Cause(
        path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {names}'
    )


def invalid_value(path: str, value: Any, why: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f'Invalid value: "{value}": {why}')


def pod_causes(body: Body) -> Iterator[Cause]:
    """Yield all validation errors of a pod's spec."""
    spec = body.get("spec") or {}
    if not spec.get("containers"):
        yield required("spec.containers")
    if spec.get("restartPolicy") not in _POLICIES:
        yield unsupported("spec.restartPolicy", spec.get("restartPolicy"), _POLICIES)
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if not isinstance(grace, int) or grace < 0:
        why = "must be greater than or equal to 0"
        yield invalid_value("spec.terminationGracePeriodSeconds", grace, why)
    yield from _host_name(spec)
    yield from _tolerations(spec)
    yield from _volumes(spec)
    yield from _containers(spec)


def _host_name(spec: Body) -> Iterator[Cause]:
    for part in ("hostname", "subdomain"):
        name = spec.get(part)
        if name and (len(name) > 63 or not _LABEL.match(name)):
            yield invalid_value(
                f"spec.{part}", name, "a lowercase RFC 1123 label must consist of lower case"
            )


def _tolerations(spec: Body) -> Iterator[Cause]:
    for i, toleration in enumerate(spec.get("tolerations") or []):
        path, operator = f"spec.tolerations[{i}]", toleration.get("operator", "")
        if operator not in _OPERATORS:
            yield unsupported(f"{path}.operator", operator, _OPERATORS)
        if operator == "Exists" and toleration.get("value"):
            yield invalid_value(
                path, toleration["value"], "value must be empty when `operator` is 'Exists'"
            )
        if not toleration.get("key") and operator != "Exists":
            yield invalid_value(
                f"{path}.operator", operator, "operator must be Exists when `key` is empty"
            )


def _volumes(spec: Body) -> Iterator[Cause]:
    used: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or []):
        path, name = f"spec.volumes[{i}]", volume.get("name", "")
        if not _LABEL.match(name) or len(name) > 63:
            yield invalid_value(
                f"{path}.name", name, "a lowercase RFC 1123 label must consist of lower case"
            )
        if name in used:
            yield Cause(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
        used.add(name)
        if len(volume) < 2:
            yield Cause(path, "FieldValueRequired", "Required value: must specify a volume type")
        if len(volume) > 2:
            yield Cause(
                path, "FieldValueForbidden", "Forbidden: may not specify more than 1 volume type"
            )
        if ".." in str(dig(volume, "hostPath.path", "")).split("/"):
            yield invalid_value(
                f"{path}.hostPath.path", volume["hostPath"]["path"], "must not contain '..'"
            )


def _containers(spec: Body) -> Iterator[Cause]:
    used: set[str] = set()
    volumes = {v.get("name") for v in spec.get("volumes") or []}
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or []):
            path, name = f"spec.{part}[{i}]", container.get("name", "")
            if name in used:
                yield Cause(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
            used.add(name)
            yield from _container(path, container)
            yield from _mounts(path, container, volumes)


def _container(path: str, container: Body) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif not _LABEL.match(name) or len(name) > 63:
        yield invalid_value(
            f"{path}.name", name, "a lowercase RFC 1123 label must consist of lower case"
        )
    if not container.get("image"):
        yield required(f"{path}.image")
    if container.get("imagePullPolicy") not in _PULLS:
        yield unsupported(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULLS)
    for i, row in enumerate(container.get("env") or []):
        if not row.get("name") or "=" in row["name"]:
            yield invalid_value(
                f"{path}.env[{i}].name", row.get("name", ""), "a valid environment variable name"
            )
        if row.get("value") and row.get("valueFrom"):
            yield invalid_value(
                f"{path}.env[{i}].valueFrom", "", "may not be specified when `value` is not empty"
            )
    yield from _resources(f"{path}.resources", container.get("resources") or {})


def _mounts(path: str, container: Body, volumes: set[Any]) -> Iterator[Cause]:
    used: set[str] = set()
    for i, mount in enumerate(container.get("volumeMounts") or []):
        at, mount_path = f"{path}.volumeMounts[{i}]", mount.get("mountPath")
        if mount.get("name") not in volumes:
            yield Cause(f"{at}.name", "FieldValueNotFound", f'Not found: "{mount.get("name")}"')
        if not mount_path:
            yield required(f"{at}.mountPath")
        elif mount_path in used:
            yield invalid_value(f"{at}.mountPath", mount_path, "must be unique")
        used.add(mount_path or "")
        sub = str(mount.get("subPath", ""))
        if sub.startswith("/") or ".." in sub.split("/"):
            yield invalid_value(
                f"{at}.subPath", sub, "must be a relative path and must not contain '..'"
            )


def _resources(path: str, resources: Body) -> Iterator[Cause]:
    for part in ("limits", "requests"):
        for name, value in (resources.get(part) or {}).items():
            yield from _amount(f"{path}.{part}[{name}]", name, value)
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in requests.items():
        try:
            exceeds_limit = name in limits and quantity(value) > quantity(limits[name])
            differs_from_limit = "/" in name and quantity(value) != quantity(limits.get(name, 0))
        except ValueError:
            continue  # reported above
        if exceeds_limit:
            yield invalid_value(
                f"{path}.requests",
                value,
                f"must be less than or equal to {name} limit of {limits[name]}",
            )
        elif differs_from_limit and name not in limits:
            message = "Required value: Limit must be set for non overcommitable resources"
            yield Cause(f"{path}.limits", "FieldValueRequired", message)
        elif differs_from_limit:
            yield invalid_value(
                f"{path}.requests", value, f"must be equal to {name} limit of {limits[name]}"
            )


def _amount(path: str, name: str, value: Any) -> Iterator[Cause]:
    try:
        amount = quantity(value)
    except ValueError as error:
        yield invalid_value(path, value, str(error))
        return
    if amount < 0:
        yield invalid_value(path, value, "must be greater than or equal to 0")
    if "/" in name and amount.denominator != 1:
        yield invalid_value(path, value, "must be an integer")
    if "/" not in name and name not in _PLAIN and not name.startswith("hugepages-"):
        yield invalid_value(path, name, "must be a standard resource for containers")


def forbidden_change(old: Body, new: Body) -> list[Cause]:
    """Return the error of an update that changes more of a pod's spec than images, deadlines and new tolerations."""
    if _immutable_part(old) == _immutable_part(new) and _only_added(old, new):
        return []
    message = (
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
        "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be "
        "set to 1 if it was previously negative)"
    )
    return [Cause("spec", "FieldValueForbidden", message)]


def _immutable_part(spec: Body) -> Body:
    made = {k: v for k, v in spec.items() if k not in ("tolerations", "activeDeadlineSeconds")}
    for part in ("containers", "initContainers"):
        if part in made:
            made[part] = [{**c, "image": ""} for c in made[part]]
    return {k: v for k, v in made.items() if v}


def _only_added(old: Body, new: Body) -> bool:
    new_tolerations = new.get("tolerations") or []
    return all(toleration in new_tolerations for toleration in old.get("tolerations") or [])

"""Applies JSON patches (RFC 6902), merge patches (RFC 7386) and strategic merge patches."""

from __future__ import annotations

import copy
from typing import Any

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the patched value. Null removes a member, and lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merge_patch(made.get(name), value)
    return made


def json_patch(target: Body, operations: list[Body]) -> Body:
    """Return the patched value. Raises ApiError 422 if an operation fails, 400 if it is invalid."""
    made: Any = copy.deepcopy(target)
    for operation in operations:
        try:
            made = _apply(made, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise _operation_error(operation, error) from error
    if not isinstance(made, dict):
        raise ApiError(422, "the patched value is not an object")
    return made


def _operation_error(operation: Body, error: Exception) -> ApiError:
    if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
        return ApiError(400, f"the operation {operation} has no op or path")
    message = f"the server rejected our request due to an error in our request: {error}"
    return ApiError(422, message, reason="Invalid")


def _apply(document: Any, operation: Body) -> Any:
    path = _steps(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            _remove(document, path)
        case "replace":
            _get(document, path)
            return _set(document, path, operation["value"])
        case "move":
            value = _remove(document, _steps(operation["from"]))
            return _add(document, path, value)
        case "copy":
            value = copy.deepcopy(_get(document, _steps(operation["from"])))
            return _add(document, path, value)
        case "test":
            if _get(document, path) != operation["value"]:
                raise ValueError(f"testing path {operation['path']} failed")
        case other:
            raise ValueError(f"unexpected kind of operation: {other}")
    return document


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer} is not a JSON pointer")
    return [s.replace("~1", "/").replace("~0", "~") for s in pointer.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if path and isinstance(parent := _get(document, path[:-1]), list):
        at = len(parent) if path[-1] == "-" else int(path[-1])
        if at > len(parent):
            raise IndexError(f"index {at} is out of bounds")
        parent.insert(at, value)
        return document
    return _set(document, path, value)


def _set(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    parent[int(path[-1]) if isinstance(parent, list) else path[-1]] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    parent = _get(document, path[:-1])
    return parent.pop(int(path[-1]) if isinstance(parent, list) else path[-1])


MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "resourceClaims": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
    "secrets": ("name",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
}
SETS = frozenset({"finalizers"})
_DIRECTIVES = ("$patch", "$retainKeys")


def strategic_merge(target: Any, patch: Body) -> Body:
    """Return the patched value."""
    made: Body = dict(target) if isinstance(target, dict) else {}
    match patch.get("$patch"):
        case "replace":
            return {k: v for k, v in patch.items() if k != "$patch"}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise ApiError(400, f"Unknown patch type found: {other}")
    if (retained_keys := patch.get("$retainKeys")) is not None:
        made = {k: v for k, v in made.items() if k in retained_keys}
    for name, value in patch.items():
        _merge_member(made, name, value)
    _apply_order(made, patch)
    return made


def _merge_member(made: Body, name: str, value: Any) -> None:
    """Apply one member of a strategic merge patch to `made`."""
    if name in _DIRECTIVES or name.startswith("$setElementOrder/"):
        return
    if name.startswith("$deleteFromPrimitiveList/"):
        list_name = name.partition("/")[2]
        made[list_name] = [v for v in made.get(list_name) or [] if v not in value]
    elif value is None:
        made.pop(name, None)
    elif isinstance(value, dict):
        made[name] = strategic_merge(made.get(name), value)
    elif isinstance(value, list):
        made[name] = _merge_list(name, made.get(name) or [], value)
    else:
        made[name] = value


def _merge_list(name: str, old: list[Any], patch: list[Any]) -> list[Any]:
    """Return a list with the patch applied. The name of the list determines whether it is a set or has a merge key."""
    if name in SETS:
        return [*old, *(v for v in patch if v not in old)]
    key = _key(name, [*old, *patch])
    if key is None or {"$patch": "replace"} in patch:
        return [p for p in patch if not (isinstance(p, dict) and "$patch" in p)]
    made = list(old)
    for row in patch:
        if key not in row:
            raise ApiError(400, f"map: {row} does not contain declared merge key: {key}")
        _merge_row(made, key, row)
    return made


def _key(name: str, rows: list[Any]) -> str | None:
    for key in MERGE_KEYS.get(name, ()):
        if any(isinstance(row, dict) and key in row for row in rows):
            return key
    return None


def _merge_row(made: list[Body], key: str, row: Body) -> None:
    at = next((i for i, old in enumerate(made) if old.get(key) == row[key]), None)
    if row.get("$patch") == "delete":
        if at is not None:
            del made[at]
    elif at is None:
        made.append(strategic_merge({}, row))
    else:
        made[at] = strategic_merge(made[at], row)


def _apply_order(made: Body, patch: Body) -> None:
    """Apply $setElementOrder: the named entries come first, in that order, then all others."""
    for name, order in patch.items():
        list_name = name.removeprefix("$setElementOrder/")
        if list_name == name or not isinstance(rows := made.get(list_name), list):
            continue
        key = _key(list_name, order)
        positions = {str(w[key] if key else w): i for i, w in enumerate(order)}
        made[list_name] = sorted(
            rows, key=lambda r: positions.get(str(r[key] if key else r), len(positions))
        )

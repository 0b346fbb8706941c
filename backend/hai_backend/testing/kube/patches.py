"""JSON patch (RFC 6902) and merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from typing import Any

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError


def merge_patch(target: Any, patch: Any) -> Any:
    """A new value; null takes a member away, lists are replaced."""
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
    """A new value; ApiError 422 when an operation does not fit, 400 when it is none."""
    made: Any = copy.deepcopy(target)
    for operation in operations:
        try:
            made = _apply(made, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise _unfit(operation, error) from error
    if not isinstance(made, dict):
        raise ApiError(422, "the patched value is not an object")
    return made


def _unfit(operation: Body, error: Exception) -> ApiError:
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
            _take(document, path)
        case "replace":
            _find(document, path)
            return _set(document, path, operation["value"])
        case "move":
            value = _take(document, _steps(operation["from"]))
            return _add(document, path, value)
        case "copy":
            value = copy.deepcopy(_find(document, _steps(operation["from"])))
            return _add(document, path, value)
        case "test":
            if _find(document, path) != operation["value"]:
                raise ValueError(f"testing path {operation['path']} failed")
        case other:
            raise ValueError(f"unexpected kind of operation: {other}")
    return document


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer} is not a JSON pointer")
    return [s.replace("~1", "/").replace("~0", "~") for s in pointer.split("/")[1:]]


def _find(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if path and isinstance(parent := _find(document, path[:-1]), list):
        at = len(parent) if path[-1] == "-" else int(path[-1])
        if at > len(parent):
            raise IndexError(f"index {at} is out of bounds")
        parent.insert(at, value)
        return document
    return _set(document, path, value)


def _set(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _find(document, path[:-1])
    parent[int(path[-1]) if isinstance(parent, list) else path[-1]] = value
    return document


def _take(document: Any, path: list[str]) -> Any:
    parent = _find(document, path[:-1])
    return parent.pop(int(path[-1]) if isinstance(parent, list) else path[-1])

"""What a request asks for: the verb, as RBAC names it, and the object or objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hai_backend.testing.kube.errors import ApiError, unknown_path
from hai_backend.testing.kube.resources import Resource, Resources

_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True, slots=True)
class Call:
    """A request for objects."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    part: str = ""  # a sub-resource
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def dry(self) -> bool:
        return self.query.get("dryRun") == "All"


def read_call(resources: Resources, method: str, path: str, query: Mapping[str, str]) -> Call:
    """Raises ApiError 404 for a path that the server does not know, 405 for a verb that it has not."""
    steps = [s for s in path.split("/") if s]
    if steps[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", steps[2:]
    elif steps[:1] == ["apis"] and len(steps) > 3:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        raise unknown_path()
    namespace, rest = _namespaced(rest)
    if not rest or len(rest) > 3:
        raise unknown_path()
    resource = resources.at(group, version, rest[0])
    name, part = (*rest[1:], "", "")[:2]
    if resource is None or (part and part not in resource.subresources):
        raise unknown_path()
    if name and resource.namespaced and not namespace:
        raise unknown_path()
    return Call(_verb(method, name, query), resource, namespace, name, part, query)


def _namespaced(rest: list[str]) -> tuple[str, list[str]]:
    """`namespaces/x/pods` lies in x; `namespaces/x` and its parts are the namespace itself."""
    inside = len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize")
    return (rest[1], rest[2:]) if inside else ("", rest)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    verb = (_ONE if name else _MANY).get(method)
    if verb is None:
        raise ApiError(405, "the server does not allow this method on the requested resource")
    if method == "GET" and query.get("watch") in ("1", "true"):
        return "watch"
    return verb

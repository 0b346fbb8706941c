"""Parses requests to their verb, as in RBAC, and their object or collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hai_backend.testing.kube.errors import ApiError, unknown_path
from hai_backend.testing.kube.resources import Resource, Resources

_OBJECT_VERBS = {
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "POST": "create",
}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request for objects."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"


def parse_request(
    resources: Resources, method: str, path: str, query: Mapping[str, str]
) -> RequestInfo:
    """Parse a request. Raises ApiError 404 for an unknown path, 405 for a method that is not allowed."""
    path_segments = [s for s in path.split("/") if s]
    if path_segments[:2] == ["api", "v1"]:
        group, version, segments = "", "v1", path_segments[2:]
    elif path_segments[:1] == ["apis"] and len(path_segments) > 3:
        group, version, segments = path_segments[1], path_segments[2], path_segments[3:]
    else:
        raise unknown_path()
    namespace, segments = _split_namespace(segments)
    if not segments or len(segments) > 3:
        raise unknown_path()
    resource = resources.find(group, version, segments[0])
    name, subresource = (*segments[1:], "", "")[:2]
    if resource is None or (subresource and subresource not in resource.subresources):
        raise unknown_path()
    if name and resource.namespaced and not namespace:
        raise unknown_path()
    return RequestInfo(_verb(method, name, query), resource, namespace, name, subresource, query)


def _split_namespace(segments: list[str]) -> tuple[str, list[str]]:
    """Return the namespace and the remaining segments.

    `namespaces/x/pods` is in the namespace x. `namespaces/x` is the Namespace object itself, which is in none.
    """
    is_inside = (
        len(segments) > 2
        and segments[0] == "namespaces"
        and segments[2] not in ("status", "finalize")
    )
    return (segments[1], segments[2:]) if is_inside else ("", segments)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    verb = (_OBJECT_VERBS if name else _COLLECTION_VERBS).get(method)
    if verb is None:
        raise ApiError(405, "the server does not allow this method on the requested resource")
    if method == "GET" and query.get("watch") in ("1", "true"):
        return "watch"
    return verb

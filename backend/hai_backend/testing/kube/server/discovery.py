"""Answers discovery requests: version, groups, resources, health, and OpenAPI documents."""

from __future__ import annotations

import json
from typing import Any

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.resources import Resource, Resources

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "fake",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "linux/amd64",
}
_HEALTH = ("/healthz", "/livez", "/readyz")
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_PARTS: dict[str, tuple[list[str], Body]] = {
    "status": (["get", "patch", "update"], {}),
    "binding": (["create"], {"kind": "Binding"}),
    "eviction": (["create"], {"kind": "Eviction", "group": "policy", "version": "v1"}),
    "log": (["get"], {}),
    "finalize": (["update"], {}),
}


def answer(resources: Resources, path: str) -> tuple[str, bytes] | None:
    """Return the content type and the body; None if the path is not a discovery path."""
    path = path.rstrip("/")
    if path.startswith(_HEALTH):
        return "text/plain", b"ok"
    document = _document(resources, path)
    return None if document is None else ("application/json", json.dumps(document).encode())


def _document(resources: Resources, path: str) -> Body | None:
    groups = resources.groups()
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        rows = [_group(g, v) for g, v in groups.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}
    if path == "/openapi/v3":
        return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in _roots(resources)}}
    if path.startswith("/openapi/v3/"):
        return _openapi(resources, path.removeprefix("/openapi/v3/"))
    segments = path.split("/")[1:]
    if segments[0] == "apis" and len(segments) == 2 and segments[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(segments[1], groups[segments[1]])}
    return _resource_list(resources, path[1:])


def _group(name: str, versions: set[str]) -> Body:
    rows = [{"groupVersion": f"{name}/{v}", "version": v} for v in sorted(versions)]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def _roots(resources: Resources) -> dict[str, list[Resource]]:
    roots: dict[str, list[Resource]] = {}
    for resource in resources.all:
        start = "apis/" if resource.group else "api/"
        roots.setdefault(start + resource.api_version, []).append(resource)
    return roots


def _resource_list(resources: Resources, root: str) -> Body | None:
    members = _roots(resources).get(root)
    if members is None:
        return None
    rows = [row for resource in members for row in _rows(resource)]
    version = members[0].api_version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": rows,
    }


def _rows(resource: Resource) -> list[Body]:
    row: Body = {"name": resource.plural, "singularName": resource.singular, "kind": resource.kind}
    row |= {"namespaced": resource.namespaced, "verbs": _VERBS, "shortNames": list(resource.short)}
    if resource.in_all:
        row["categories"] = ["all"]
    base = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    parts = [
        {**base, "name": f"{resource.plural}/{part}", "verbs": _PARTS[part][0], **_PARTS[part][1]}
        for part in resource.subresources
    ]
    return [row, *parts]


def _openapi(resources: Resources, root: str) -> Body | None:
    """Return a document that declares only that each kind can be patched and that the server validates fields."""
    members = _roots(resources).get(root)
    if members is None:
        return None
    paths = {f"/{root}/{r.plural}/{{name}}": {"patch": _operation(r)} for r in members}
    return {"openapi": "3.0.0", "info": {"title": "fake", "version": "v1.36.2"}, "paths": paths}


def _operation(resource: Resource) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    names = ("dryRun", "fieldManager", "fieldValidation")
    parameters = [{"name": n, "in": "query", "schema": {"type": "string"}} for n in names]
    return {"parameters": parameters, "x-kubernetes-group-version-kind": kind, "responses": {}}

"""Computes what `hai cluster up` would change, from the manifests and the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hai.client import errors
from hai_tui.cli.server.helm import Cluster

_RESOURCE_POLICY = "helm.sh/resource-policy"


@dataclass(frozen=True, slots=True)
class Plan:
    """Objects to create and delete, as KIND/NAME, and the diff of kubectl, which contains no values of secrets."""

    created: tuple[str, ...]
    deleted: tuple[str, ...]
    diff: str

    @property
    def has_changes(self) -> bool:
        return bool(self.created or self.deleted or self.diff)


def make_plan(cluster: Cluster, manifest: str) -> Plan:
    """Compare manifests with the cluster. Raise HaiError."""
    new = dict(_objects(manifest))
    old = dict(_objects(_installed(cluster)))
    existing = "\n---\n".join(json.dumps(body) for name, body in new.items() if name in old)
    diff = (
        cluster.kubectl("diff", "-f", "-", stdin_text=existing, accepted_codes=(0, 1))
        if existing
        else ""
    )
    removed = (name for name, body in old.items() if name not in new and not _is_retained(body))
    return Plan(tuple(name for name in new if name not in old), tuple(removed), diff)


def _installed(cluster: Cluster) -> str:
    try:
        return cluster.helm("get", "manifest", cluster.release)
    except errors.NotFound:
        return ""


def _objects(manifests: str) -> Iterator[tuple[str, Any]]:
    import yaml

    for body in yaml.safe_load_all(manifests):
        if body:
            yield f"{body['kind']}/{body['metadata']['name']}", body


def _is_retained(body: Any) -> bool:
    return (body["metadata"].get("annotations") or {}).get(_RESOURCE_POLICY) == "keep"

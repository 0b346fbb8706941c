"""Whom the network lets in to a run: pods of the same user, and everybody to the ports that the run publishes.

Ranks of a gang find each other so, a user's tasks too; nobody else's pods do. The servers never call pods: agents call
them. What pods may call is not limited. It needs a network plugin that knows NetworkPolicy, as most do; pods with the
right `host_network` are on their node's network, where no policy holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from hai_backend.launch.manifests.names import (
    USER,
    Manifest,
    label_value,
    metadata,
    own_labels,
    owner_name,
    selector,
)
from hai_backend.launch.manifests.services import is_published
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest


def isolation(run: RunRequest, settings: ClusterSettings, owner_uid: str) -> Iterator[Manifest]:
    """The NetworkPolicy of a run; none where operators want an open network."""
    if not settings.separate_users:
        return
    own = {"podSelector": {"matchLabels": {**selector(settings), USER: label_value(run.user)}}}
    ports = [{"port": s.port, "protocol": "TCP"} for s in run.services if is_published(s, settings)]
    yield {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(owner_name(run.task_id, run.run), run, settings, owner_uid=owner_uid),
        "spec": {
            "podSelector": {"matchLabels": own_labels(settings, run.task_id, run.run)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [own]}, *([{"ports": ports}] if ports else [])],
        },
    }

"""Builds all objects of one run.

The owner is created first, because the other objects refer to its uid. They are deleted together with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hai_backend.launch.base import RankLaunch
from hai_backend.launch.manifests.agent import identities, server_files
from hai_backend.launch.manifests.checks import validate
from hai_backend.launch.manifests.names import Manifest, metadata, owner_name
from hai_backend.launch.manifests.network import (
    headless_service,
    network_policy,
    published_services,
)
from hai_backend.launch.manifests.pod import pod
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest


def owner(run: RunRequest, settings: ClusterSettings) -> Manifest:
    """Return the ConfigMap that owns the run's other objects. Raises Invalid if the run breaks a rule of checks.py."""
    validate(run, settings)
    name = owner_name(run.task_id, run.run)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name, run, settings, owner_uid=""),
        "data": server_files(settings),
    }


def objects(
    run: RunRequest, ranks: Sequence[RankLaunch], settings: ClusterSettings, owner_uid: str
) -> tuple[Manifest, ...]:
    """Return all objects except the owner, whose uid is `owner_uid`. Raises Invalid."""
    assert all((r.key.task_id, r.key.run) == (run.task_id, run.run) for r in ranks)
    validate(run, settings)
    return (
        _secret(run, ranks, settings, owner_uid),
        headless_service(run, settings, owner_uid),
        *network_policy(run, settings, owner_uid),
        *published_services(run, settings, owner_uid),
        *(pod(run, rank, settings, owner_uid) for rank in ranks),
    )


def _secret(
    run: RunRequest, ranks: Sequence[RankLaunch], settings: ClusterSettings, owner_uid: str
) -> Manifest:
    name = owner_name(run.task_id, run.run)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(name, run, settings, owner_uid=owner_uid),
        "type": "Opaque",
        "data": identities(ranks),
    }

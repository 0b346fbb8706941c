"""Everything that stands in the cluster for one run. The owner comes first: others carry its uid and go with it."""

from __future__ import annotations

from collections.abc import Sequence

from hai_backend.launch.base import RankLaunch
from hai_backend.launch.manifests.agent import identities, server_files
from hai_backend.launch.manifests.checks import checked
from hai_backend.launch.manifests.isolation import isolation
from hai_backend.launch.manifests.names import Manifest, metadata, owner_name
from hai_backend.launch.manifests.pod import pod
from hai_backend.launch.manifests.services import headless, published
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest


def owner(run: RunRequest, settings: ClusterSettings) -> Manifest:
    """The ConfigMap that owns the run's other objects. Raises Invalid for what may not reach a cluster."""
    checked(run, settings)
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
    """All but the owner, in the order in which they are made; `owner_uid` is the cluster's. Raises Invalid."""
    assert all((r.key.task_id, r.key.run) == (run.task_id, run.run) for r in ranks)
    checked(run, settings)
    return (
        _secret(run, ranks, settings, owner_uid),
        headless(run, settings, owner_uid),
        *isolation(run, settings, owner_uid),
        *published(run, settings, owner_uid),
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

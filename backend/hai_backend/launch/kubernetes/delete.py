"""Deletes pods, and the objects of runs that have ended.

The owner of a run is the ConfigMap that owns all its other objects. The cluster deletes them together with the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from hai_backend.kube_cache.source import Body, Broken, Expired
from hai_backend.launch.base import RankKey
from hai_backend.launch.kubernetes.api import Api
from hai_backend.launch.kubernetes.errors import ApiError, NotFound, Rejected, Throttled
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.ranks import DeletePod, Run
from hai_backend.launch.kubernetes.watches import labels_text
from hai_backend.launch.manifests.names import (
    RUN,
    TASK,
    installation_labels,
    is_ours,
    owner_name,
    pod_name,
    run_labels,
)
from hai_backend.launch.manifests.settings import ClusterSettings

log = structlog.get_logger(__name__)
_PREEMPTED: Body = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "HAI: its node is given to another task",
}


class PodDeleter:
    """Deletes pods. The options determine whether it marks them as preempted and evicts them, and the grace period."""

    def __init__(self, api: Api, cluster: ClusterSettings, options: Options) -> None:
        self._api = api
        self._cluster = cluster
        self._options = options

    async def delete_pod(self, delete_pod: DeletePod) -> Body | None:
        """Begin to delete a pod. Return the pod, or None if it does not exist any more.

        Waits while the API server is unavailable.
        """
        name = pod_name(delete_pod.key)
        try:
            uid = delete_pod.uid or await self._uid_of_pod(delete_pod.key)
            if delete_pod.preempted and self._options.mark_preempted:
                await self._mark(name, uid)
            if self._options.evict and not delete_pod.force:
                await self._evict(name, uid)
            grace = 0 if delete_pod.force else int(self._options.kill_grace)
            body = await self._api.retry_forever(
                lambda: self._api.delete("Pod", name, grace=grace, uid=uid)
            )
        except NotFound:
            return None
        return body if body.get("kind") == "Pod" else None  # a Status: the pod is deleted

    async def _uid_of_pod(self, key: RankKey) -> str:
        """Return the uid of a pod that no watch has shown yet. Raises NotFound, also if the pod is not ours."""
        name, labels = pod_name(key), run_labels(self._cluster, key.task_id, key.run, key.rank)
        return _uid(await self._api.retry_forever(lambda: self._api.get("Pod", name)), labels)

    async def _mark(self, name: str, uid: str) -> None:
        """Set the condition by which other controllers and people recognize a preempted pod."""
        change = {"metadata": {"uid": uid}, "status": {"conditions": [_PREEMPTED]}}
        try:
            await self._api.patch("Pod", name, change, "status")
        except NotFound:
            return
        except ApiError as error:
            log.info("a pod could not be marked", pod=name, why=str(error))

    async def _evict(self, name: str, uid: str) -> None:
        """Evict the pod if disruption budgets allow it. The caller deletes it in any case."""
        try:
            await self._api.evict(name, grace=int(self._options.kill_grace), uid=uid)
        except (Throttled, Rejected) as error:
            log.warning("a pod was not evicted, and is deleted", pod=name, why=str(error))
        except ApiError:
            return  # the deletion that follows fails in the same way


class GarbageCollector:
    """Deletes the owners of ended runs, and thereby all objects of these runs.

    `is_needed` returns whether a run still has ranks, or whether they are being created.
    """

    def __init__(
        self, api: Api, cluster: ClusterSettings, is_needed: Callable[[Run], bool]
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._query = {"labelSelector": labels_text(installation_labels(cluster))}
        self._is_needed = is_needed
        self._unneeded_before: frozenset[Run] = frozenset()
        self._uids: dict[Run, str] = {}

    async def load_owners(self) -> frozenset[Run]:
        """List the owners, and return their runs, whose launch has therefore begun.

        Waits while the API server is unavailable.
        """
        while True:
            try:
                self._uids = await self._api.retry_forever(self._owners)
                return frozenset(self._uids)
            except Expired:
                log.info("owners are listed again")

    def owner_created(self, run: Run, uid: str) -> None:
        """Record the uid of the owner of a run."""
        self._uids[run] = uid

    async def delete_owner(self, run: Run) -> None:
        """Delete the objects of a run. After an error, `collect` tries again."""
        name = owner_name(*run)
        try:
            uid = self._uids.pop(run, "") or _uid(
                await self._api.get("ConfigMap", name), run_labels(self._cluster, *run)
            )
            await self._api.delete("ConfigMap", name, uid=uid)
        except NotFound:
            return
        except ApiError as error:
            log.warning("a run's objects were not deleted yet", run=run, why=str(error))

    async def collect(self) -> None:
        """Delete owners that were not needed at the previous call and are not needed now.

        Such owners are left when a server ends before it has deleted them.
        """
        try:
            found = await self._owners()
        except (Broken, Expired, ApiError) as error:
            log.warning("leftover objects could not be listed", why=str(error))
            return
        owners = {**found, **self._uids}
        self._uids = {run: owners[run] for run in owners if run in found or self._is_needed(run)}
        unneeded = [run for run in sorted(found) if not self._is_needed(run)]
        for run in unneeded:
            if run in self._unneeded_before and not self._is_needed(run):
                await self.delete_owner(run)
        self._unneeded_before = frozenset(unneeded)

    async def _owners(self) -> dict[Run, str]:
        uids: dict[Run, str] = {}
        async for page in self._api.pages("ConfigMap", self._query):
            uids |= {
                run: item["metadata"]["uid"]
                for item in page.items
                if (run := _run_of(item)) is not None
            }
        return uids


def _uid(body: Body, labels: Mapping[str, str]) -> str:
    """Return the uid of an object. Raises NotFound if it is not ours."""
    if not is_ours(body, labels):
        raise NotFound(f"{body['metadata']['name']} is not of this installation")
    uid: str = body["metadata"]["uid"]
    return uid


def _run_of(owner: Any) -> Run | None:
    labels = owner["metadata"].get("labels") or {}
    try:
        return int(labels[TASK]), int(labels[RUN])
    except (KeyError, ValueError):
        return None

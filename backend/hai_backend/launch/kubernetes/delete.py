"""Ends pods, and deletes what is left of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from hai_backend.launch.base import RankKey
from hai_backend.launch.kubernetes.actions import End, Run
from hai_backend.launch.kubernetes.api import Api
from hai_backend.launch.kubernetes.errors import ApiError, NotFound, Refused, Throttled
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.ownership import is_ours
from hai_backend.launch.kubernetes.watches import labels_text
from hai_backend.launch.manifests.names import RUN, TASK, own_labels, owner_name, pod_name
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.watch.source import Body, Broken, Expired

log = structlog.get_logger(__name__)
_PREEMPTED: Body = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "HAI: its node is given to another task",
}


class Ender:
    """Deletes pods in the way that the operators want."""

    def __init__(self, api: Api, cluster: ClusterSettings, options: Options) -> None:
        self._api = api
        self._cluster = cluster
        self._options = options

    async def end(self, end: End) -> Body | None:
        """The pod as the API server then shows it; None when there is none. Waits while the API server is away."""
        name = pod_name(end.key)
        try:
            uid = end.uid or await self._found(end.key)
            if end.preempted and self._options.mark_preempted:
                await self._mark(name, uid)
            if self._options.evict and not end.force:
                await self._evict(name, uid)
            grace = 0 if end.force else int(self._options.kill_grace)
            body = await self._api.patiently(
                lambda: self._api.delete("Pod", name, grace=grace, uid=uid)
            )
        except NotFound:
            return None
        return body if body.get("kind") == "Pod" else None  # a Status: it is gone already

    async def _found(self, key: RankKey) -> str:
        """The uid of a rank's pod that nobody has seen yet. Raises NotFound, also when the name is not ours."""
        name, labels = pod_name(key), own_labels(self._cluster, key.task_id, key.run, key.rank)
        return _uid(await self._api.patiently(lambda: self._api.get("Pod", name)), labels)

    async def _mark(self, name: str, uid: str) -> None:
        """What others, as Job controllers and people, read of a pod that was ended for another's sake."""
        change = {"metadata": {"uid": uid}, "status": {"conditions": [_PREEMPTED]}}
        try:
            await self._api.patch("Pod", name, change, "status")
        except NotFound:
            return
        except ApiError as error:
            log.info("a pod could not be marked", pod=name, why=str(error))

    async def _evict(self, name: str, uid: str) -> None:
        """As far as budgets let it; a task that must leave is ended all the same."""
        try:
            await self._api.evict(name, grace=int(self._options.kill_grace), uid=uid)
        except (Throttled, Refused) as error:
            log.warning("a pod was not evicted, and is deleted", pod=name, why=str(error))
        except ApiError:
            return  # deleting it comes next, and says the same


class Sweeper:
    """Deletes owners, and with them everything of their runs. `wanted` says whether a run still needs it."""

    def __init__(self, api: Api, cluster: ClusterSettings, wanted: Callable[[Run], bool]) -> None:
        self._api = api
        self._cluster = cluster
        self._ours = {"labelSelector": labels_text(cluster)}
        self._wanted = wanted
        self._suspects: frozenset[Run] = frozenset()
        self._uids: dict[Run, str] = {}

    async def begin(self) -> frozenset[Run]:
        """Runs that have an owner: their launch had begun. Waits while the API server is away."""
        while True:
            try:
                self._uids = await self._api.patiently(self._owners)
                return frozenset(self._uids)
            except Expired:
                log.info("owners are listed again")

    def owned(self, run: Run, uid: str) -> None:
        """The owner of a run is there."""
        self._uids[run] = uid

    async def clean(self, run: Run) -> None:
        """Delete what is left of a run. What fails here is swept later."""
        name = owner_name(*run)
        try:
            uid = self._uids.pop(run, "") or _uid(
                await self._api.get("ConfigMap", name), own_labels(self._cluster, *run)
            )
            await self._api.delete("ConfigMap", name, uid=uid)
        except NotFound:
            return
        except ApiError as error:
            log.warning("a run's objects were not deleted yet", run=run, why=str(error))

    async def sweep(self) -> None:
        """Owners that nobody needed at the last sweep and nobody needs now: a server died before it cleaned."""
        try:
            found = await self._owners()
        except (Broken, Expired, ApiError) as error:
            log.warning("leftovers were not looked for", why=str(error))
            return
        known = {**found, **self._uids}
        self._uids = {run: known[run] for run in known if run in found or self._wanted(run)}
        unwanted = [run for run in sorted(found) if not self._wanted(run)]
        for run in unwanted:
            if run in self._suspects and not self._wanted(run):
                await self.clean(run)
        self._suspects = frozenset(unwanted)

    async def _owners(self) -> dict[Run, str]:
        uids: dict[Run, str] = {}
        async for page in self._api.pages("ConfigMap", self._ours):
            uids |= {
                run: item["metadata"]["uid"]
                for item in page.items
                if (run := _run_of(item)) is not None
            }
        return uids


def _uid(body: Body, labels: Mapping[str, str]) -> str:
    """Of an object that is ours. Raises NotFound when it is not: ours is not there."""
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

"""Creates the objects of a run: the owner, then all others except the pods, then the pods.

The owner is the ConfigMap that owns the other objects. Objects that already exist are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hai_backend.domain.errors import Invalid
from hai_backend.kube_cache.source import Body
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.kubernetes.api import Api
from hai_backend.launch.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    NameConflict,
    NotFound,
    Rejected,
)
from hai_backend.launch.kubernetes.ranks import Run
from hai_backend.launch.manifests.names import (
    HAI,
    INSTANCE,
    MANAGED_BY,
    Manifest,
    identifying_labels,
    is_ours,
    key_of,
    labels_of,
)
from hai_backend.launch.manifests.objects import objects, owner
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest

_UNPROCESSABLE = 422  # the response if the labels of the object are not the expected ones


class ObjectCreator:
    """Creates objects and reports the results with callbacks.

    It calls `on_owner` with the uid of each run's owner, `on_pod` for every pod that exists, and `on_failure`, with the
    reason, for every rank whose pod could not be created.
    """

    def __init__(
        self,
        api: Api,
        settings: ClusterSettings,
        on_pod: Callable[[RankKey, Body], None],
        on_failure: Callable[[RankKey, str], None],
        on_owner: Callable[[Run, str], None],
    ) -> None:
        self._api = api
        self._settings = settings
        self._on_pod = on_pod
        self._on_failure = on_failure
        self._on_owner = on_owner

    async def create_run(self, run: RunRequest, ranks: Sequence[RankLaunch]) -> None:
        """Create the objects of `ranks`, which belong to this run. Wait while the API server is unavailable."""
        try:
            pod_manifests = await self._create_all_but_pods(run, ranks)
        except (Invalid, Rejected, NotFound, NameConflict) as error:
            for rank in ranks:
                self._on_failure(rank.key, _error_text(error))
            return
        await asyncio.gather(*(self._create_pod(manifest) for manifest in pod_manifests))

    async def _create_all_but_pods(
        self, run: RunRequest, ranks: Sequence[RankLaunch]
    ) -> list[Manifest]:
        """Create the owner and all other objects except the pods. Return the manifests of the pods."""
        uid = await self._create(owner(run, self._settings))
        self._on_owner((run.task_id, run.run), uid)
        manifests = objects(run, ranks, self._settings, uid)
        pods = [manifest for manifest in manifests if manifest["kind"] == "Pod"]
        others = [manifest for manifest in manifests if manifest["kind"] != "Pod"]
        await asyncio.gather(*map(self._create, others))
        return pods

    async def _create(self, manifest: Manifest) -> str:
        """Create an object or use the existing one. Return its uid."""
        try:
            body = await self._api.retry_forever(lambda: self._api.create(manifest))
        except AlreadyExists:
            found = self._add_to_secret if manifest["kind"] == "Secret" else self._existing
            body = await found(manifest)
        uid: str = body["metadata"]["uid"]
        return uid

    async def _existing(self, manifest: Manifest) -> Body:
        """Return the existing object with this name. Raises NameConflict if it is not ours."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        body = await self._api.retry_forever(lambda: self._api.get(kind, name))
        if not is_ours(body, identifying_labels(manifest)):
            raise name_conflict(manifest, body)
        return body

    async def _add_to_secret(self, secret: Manifest) -> Body:
        """Add the data to the run's Secret, which an earlier request for other ranks may have created.

        The server has no permission to read Secrets, so the API server compares the labels.
        """
        name, labels = secret["metadata"]["name"], identifying_labels(secret)
        try:
            return await self._api.retry_forever(
                lambda: self._api.add("Secret", name, "data", secret["data"], where=labels)
            )
        except Rejected as error:
            if error.code == _UNPROCESSABLE:
                raise name_conflict(secret) from error
            raise

    async def _create_pod(self, manifest: Manifest) -> None:
        key = key_of(manifest["metadata"]["labels"])
        assert key is not None
        try:
            self._on_pod(key, await self._api.retry_forever(lambda: self._api.create(manifest)))
        except AlreadyExists:
            await self._use_existing_pod(key, manifest)
        except ApiError as error:
            self._on_failure(key, _error_text(error))

    async def _use_existing_pod(self, key: RankKey, manifest: Manifest) -> None:
        try:
            self._on_pod(key, await self._existing(manifest))
        except ApiError as error:  # the pod is not ours, or was deleted meanwhile
            self._on_failure(key, _error_text(error))


def _error_text(error: Exception) -> str:
    if isinstance(error, Invalid):
        return "; ".join(f"{v.field} {v.message}" for v in error.violations)
    if isinstance(error, NameConflict):
        return str(error)
    return f"the cluster refused it: {error}"


def name_conflict(manifest: Manifest, found: Body | None = None) -> NameConflict:
    """Return the error for an object that is not ours but has the name of `manifest`.

    `found` is that object; None if the server has no permission to read it.
    """
    description = f"{manifest['kind']} {manifest['metadata']['name']}"
    return NameConflict(
        f"the namespace {manifest['metadata']['namespace']} has a {description} already, {_owner_text(found)}: let each"
        " installation have a namespace of its own (setting kubernetes.namespace), or delete what is not needed"
    )


def _owner_text(found: Body | None) -> str:
    labels = labels_of(found) if found is not None else {}
    if labels.get(MANAGED_BY) == HAI and INSTANCE in labels:
        return f"of the installation {labels[INSTANCE]}"
    return "which is not of this installation"

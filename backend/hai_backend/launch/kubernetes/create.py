"""Makes the objects of a run: the owner first, then all else, many at once. What is there already is left as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hai_backend.domain.errors import Invalid
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.kubernetes.actions import Run
from hai_backend.launch.kubernetes.api import Api
from hai_backend.launch.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    Refused,
    Taken,
)
from hai_backend.launch.kubernetes.ownership import is_ours, taken, telling
from hai_backend.launch.manifests.names import Manifest, key_of
from hai_backend.launch.manifests.objects import objects, owner
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest
from hai_backend.watch.source import Body

_UNFIT = 422  # the labels are not those that it was asked about


class Maker:
    """`seen` hears of every pod that is there; `failed` of every rank that cannot be, with a sentence.

    `owned` hears the uid of the owner of each run.
    """

    def __init__(
        self,
        api: Api,
        settings: ClusterSettings,
        seen: Callable[[RankKey, Body], None],
        failed: Callable[[RankKey, str], None],
        owned: Callable[[Run, str], None],
    ) -> None:
        self._api = api
        self._settings = settings
        self._seen = seen
        self._failed = failed
        self._owned = owned

    async def make(self, run: RunRequest, ranks: Sequence[RankLaunch]) -> None:
        """All ranks are of this run. Waits for as long as the API server is away."""
        try:
            made = await self._make_rest(run, ranks)
        except (Invalid, Refused, NotFound, Taken) as error:
            for rank in ranks:
                self._failed(rank.key, _words(error))
            return
        await asyncio.gather(*(self._make_pod(manifest) for manifest in made))

    async def _make_rest(self, run: RunRequest, ranks: Sequence[RankLaunch]) -> list[Manifest]:
        """Everything but the pods, which are answered."""
        uid = await self._make(owner(run, self._settings))
        self._owned((run.task_id, run.run), uid)
        manifests = objects(run, ranks, self._settings, uid)
        pods = [manifest for manifest in manifests if manifest["kind"] == "Pod"]
        others = [manifest for manifest in manifests if manifest["kind"] != "Pod"]
        await asyncio.gather(*map(self._make, others))
        return pods

    async def _make(self, manifest: Manifest) -> str:
        """Its uid."""
        try:
            body = await self._api.patiently(lambda: self._api.create(manifest))
        except AlreadyExists:
            found = self._complete if manifest["kind"] == "Secret" else self._found
            body = await found(manifest)
        uid: str = body["metadata"]["uid"]
        return uid

    async def _found(self, manifest: Manifest) -> Body:
        """What has the name already. Raises Taken when it is not ours …"""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        body = await self._api.patiently(lambda: self._api.get(kind, name))
        if not is_ours(body, telling(manifest)):
            raise taken(manifest, body)
        return body

    async def _complete(self, secret: Manifest) -> Body:
        """It may be of other ranks of the run. Secrets are never read: the API server looks whose it is."""
        name, labels = secret["metadata"]["name"], telling(secret)
        try:
            return await self._api.patiently(
                lambda: self._api.add("Secret", name, "data", secret["data"], where=labels)
            )
        except Refused as error:
            if error.code == _UNFIT:
                raise taken(secret) from error
            raise

    async def _make_pod(self, manifest: Manifest) -> None:
        key = key_of(manifest["metadata"]["labels"])
        assert key is not None
        try:
            self._seen(key, await self._api.patiently(lambda: self._api.create(manifest)))
        except AlreadyExists:
            await self._find_pod(key, manifest)
        except ApiError as error:
            self._failed(key, _words(error))

    async def _find_pod(self, key: RankKey, manifest: Manifest) -> None:
        try:
            self._seen(key, await self._found(manifest))
        except ApiError as error:  # not ours, or gone again meanwhile
            self._failed(key, _words(error))


def _words(error: Exception) -> str:
    if isinstance(error, Invalid):
        return "; ".join(f"{v.field} {v.message}" for v in error.violations)
    if isinstance(error, Taken):
        return str(error)
    return f"the cluster refused it: {error}"

"""The pods that write checkpoints from the memory of nodes to disk, also after their ranks have ended.

A writer is created when the agent of a rank reports that something is staged, or when a rank ends without a report of
its agent. It ends when all is on disk, and is then deleted. One that ends before that is created again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog

from hai_backend.kube_cache.cache import Change, ObjectCache
from hai_backend.kube_cache.reflector import Pace, Reflector
from hai_backend.kube_cache.source import Body
from hai_backend.launch.base import RankKey
from hai_backend.launch.kubernetes.api import Api, ApiSource
from hai_backend.launch.kubernetes.errors import AlreadyExists, ApiError, NotFound
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.ranks import Run
from hai_backend.launch.kubernetes.watches import labels_text
from hai_backend.launch.manifests.checkpoints import writer_pod
from hai_backend.launch.manifests.names import (
    CHECKPOINT_WRITER,
    NAME,
    Manifest,
    installation_labels,
    is_ours,
    key_of,
    pod_name,
    run_labels,
)
from hai_backend.launch.manifests.settings import ClusterSettings

log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 10.0  # until a writer that was evicted is created again
_CREATE_SECONDS = 10.0  # for which the end of a rank waits for its writer


@dataclass(frozen=True, slots=True)
class Writer:
    """The pod of a writer. `manifest` creates it again."""

    key: RankKey | None
    uid: str
    phase: str
    manifest: Manifest


class CheckpointWriters:
    """Creates, watches and deletes the writers. `node_uid` returns the uid of a node; empty if there is none."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterSettings,
        options: Options,
        random: Random,
        node_uid: Callable[[str], str],
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._node_uid = node_uid
        self._cache: ObjectCache[Writer] = ObjectCache(_read)
        labels = {**installation_labels(cluster), NAME: CHECKPOINT_WRITER}
        self._reflector = Reflector(
            *("checkpoint writers", ApiSource(api, "Pod", {"labelSelector": labels_text(labels)})),
            *(self._cache, self._changed),
            pace=Pace(options.relist_seconds),
            random=random,
        )
        self._existing: set[RankKey] = set()
        self._creating: dict[RankKey, asyncio.Task[None]] = {}
        self._other_work: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Watch the writers until cancelled."""
        try:
            await self._reflector.run()
        finally:
            for work in (*self._creating.values(), *self._other_work):
                work.cancel()

    def write(self, key: RankKey) -> None:
        """See that the staged checkpoints of a rank are written. Its pod must still exist."""
        if key not in self._existing and key not in self._creating:
            self._creating[key] = asyncio.ensure_future(self._create_for(key))

    def being_created(self, run: Run) -> list[RankKey]:
        """Return the ranks of a run whose writers are being created."""
        return [key for key in self._creating if (key.task_id, key.run) == run]

    async def wait_created(self, keys: Iterable[RankKey]) -> None:
        """Wait until writers that are being created exist, because they are made from the pods of their ranks.

        A writer that cannot be created must not keep a rank for ever.
        """
        creating = {self._creating[key] for key in keys if key in self._creating}
        if creating:
            await asyncio.wait(creating, timeout=_CREATE_SECONDS)

    async def _create_for(self, key: RankKey) -> None:
        labels = run_labels(self._cluster, key.task_id, key.run, key.rank)
        try:
            manifest = await self._manifest_for(key, labels)
            if manifest is not None and await self._create(manifest):
                self._existing.add(key)
        finally:
            del self._creating[key]

    async def _manifest_for(self, key: RankKey, labels: Mapping[str, str]) -> Manifest | None:
        try:
            pod = await self._api.retry_forever(lambda: self._api.get("Pod", pod_name(key)))
        except NotFound:
            return None  # the next run on the node finds the checkpoints
        node_uid = self._node_uid(pod["spec"]["nodeName"])
        if not node_uid or not is_ours(pod, labels):
            return None
        return writer_pod(pod, key, self._cluster, node_uid)

    async def _create(self, manifest: Manifest) -> bool:
        """Create a writer. Return False if the cluster refuses it. The next report of the agent tries again."""
        try:
            await self._api.retry_forever(lambda: self._api.create(manifest))
        except AlreadyExists:
            return True
        except ApiError as error:
            name = manifest["metadata"]["name"]
            log.error("staged checkpoints cannot be written", pod=name, why=str(error))
            return False
        return True

    def _changed(self, changes: Sequence[Change[Writer]]) -> None:
        for change in changes:
            writer = change.after or change.before
            assert writer is not None
            if writer.key is None:
                continue
            if change.after is None:
                self._existing.discard(writer.key)
                if writer.phase != "Succeeded":
                    self._spawn(self._create_again(writer))
            elif writer.phase in ("Succeeded", "Failed"):
                self._spawn(self._delete(writer))
            else:
                self._existing.add(writer.key)

    async def _delete(self, writer: Writer) -> None:
        name = writer.manifest["metadata"]["name"]
        try:
            await self._api.retry_forever(
                lambda: self._api.delete("Pod", name, grace=0, uid=writer.uid)
            )
        except NotFound:
            return

    async def _create_again(self, writer: Writer) -> None:
        name, node = writer.manifest["metadata"]["name"], writer.manifest["spec"]["nodeName"]
        log.warning("a checkpoint writer was ended before all was on disk", pod=name, node=node)
        await asyncio.sleep(_AGAIN_SECONDS)
        (owner,) = writer.manifest["metadata"]["ownerReferences"]
        if self._node_uid(node) == owner["uid"]:  # otherwise the node has lost its memory
            await self._create(writer.manifest)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._other_work.add(task)
        task.add_done_callback(self._other_work.discard)


def _read(body: Body) -> Writer:
    meta = body["metadata"]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            name: meta[name] for name in ("name", "namespace", "labels", "ownerReferences")
        },
        "spec": body["spec"],
    }
    phase = (body.get("status") or {}).get("phase", "")
    return Writer(key_of(meta["labels"]), meta["uid"], phase, manifest)

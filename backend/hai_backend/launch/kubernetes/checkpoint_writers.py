"""The pods that write checkpoints from the memory of nodes to disk, also after their ranks have ended.

A writer is created when the agent of a rank reports a staged checkpoint, or when a rank ends without a report of its
agent. It ends when all is on disk. Then it is deleted. One that was evicted or deleted before that is created again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
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
_AGAIN_SECONDS = 5.0  # until a writer that was evicted is created again


@dataclass(frozen=True, slots=True)
class Writer:
    """The pod of a writer. `manifest` creates it again."""

    key: RankKey | None
    uid: str
    phase: str
    manifest: Manifest


class CheckpointWriters:
    """Creates, watches and deletes the writers. `has_node` returns whether the cluster has a node."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterSettings,
        options: Options,
        random: Random,
        has_node: Callable[[str], bool],
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._has_node = has_node
        self._cache: ObjectCache[Writer] = ObjectCache(_read)
        labels = {**installation_labels(cluster), NAME: CHECKPOINT_WRITER}
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        self._reflector = Reflector(
            *("checkpoint writers", ApiSource(api, "Pod", {"labelSelector": selector})),
            *(self._cache, self._changed),
            pace=Pace(options.relist_seconds),
            random=random,
        )
        self._created: set[RankKey] = (
            set()
        )  # writers that exist, are being created, or were refused
        self._creating: set[asyncio.Task[None]] = set()
        self._other_work: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Watch the writers until cancelled."""
        try:
            await self._reflector.run()
        finally:
            for work in self._creating | self._other_work:
                work.cancel()

    def write(self, key: RankKey) -> None:
        """See that the staged checkpoints of a rank are written. Its pod must still exist."""
        if key not in self._created:
            self._created.add(key)
            _spawn(self._create_for(key), self._creating)

    async def wait_created(self) -> None:
        """Wait until the writers that are being created exist, because they are made from the pods of their ranks."""
        if self._creating:
            await asyncio.wait(set(self._creating))

    async def _create_for(self, key: RankKey) -> None:
        labels = run_labels(self._cluster, key.task_id, key.run, key.rank)
        try:
            pod = await self._api.retry_forever(lambda: self._api.get("Pod", pod_name(key)))
        except NotFound:
            return  # its memory is lost, or the next run on the node finds it
        manifest = writer_pod(pod, key, self._cluster) if is_ours(pod, labels) else None
        if manifest is not None:
            await self._create(manifest)

    async def _create(self, manifest: Manifest) -> None:
        try:
            await self._api.retry_forever(lambda: self._api.create(manifest))
        except AlreadyExists:
            return
        except ApiError as error:
            name = manifest["metadata"]["name"]
            log.error("staged checkpoints cannot be written", pod=name, why=str(error))

    def _changed(self, changes: Sequence[Change[Writer]]) -> None:
        for change in changes:
            writer = change.after or change.before
            assert writer is not None
            if writer.key is None:
                continue
            if change.after is None:
                self._created.discard(writer.key)
                if writer.phase != "Succeeded":
                    _spawn(self._create_again(writer), self._other_work)
            elif writer.phase in ("Succeeded", "Failed"):
                _spawn(self._delete(writer), self._other_work)
            else:
                self._created.add(writer.key)

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
        if self._has_node(node):
            await self._create(writer.manifest)


def _spawn(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _read(body: Body) -> Writer:
    meta = body["metadata"]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name: meta[name] for name in ("name", "namespace", "labels")},
        "spec": body["spec"],
    }
    phase = (body.get("status") or {}).get("phase", "")
    return Writer(key_of(meta["labels"]), meta["uid"], phase, manifest)

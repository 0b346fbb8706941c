"""The watches of the cluster: of nodes, our pods, foreign pods, and warning Events about pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import structlog

from hai_backend.kube_cache.cache import Change, ObjectCache
from hai_backend.kube_cache.nodes import NodeRules, ObservedNode, read_node
from hai_backend.kube_cache.reflector import Pace, Reflector
from hai_backend.kube_cache.source import Body
from hai_backend.launch.kubernetes.api import ANY_POD, Api, ApiSource
from hai_backend.launch.kubernetes.errors import Rejected
from hai_backend.launch.kubernetes.foreign_pods import ForeignPod, read_foreign
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.pod_failures import Cause, cause_of_event
from hai_backend.launch.kubernetes.pods import ObservedPod, read_pod
from hai_backend.launch.manifests.names import installation_labels
from hai_backend.launch.manifests.settings import ClusterSettings

log = structlog.get_logger(__name__)
PodWarning = tuple[str, Cause | None]  # the uid of the pod, and the cause that the Event reports
_UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_WARNINGS = {"fieldSelector": "involvedObject.kind=Pod,type=Warning"}


class ClusterWatches:
    """Watches the cluster, and calls the callbacks with every change. The first list counts as changes, too."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterSettings,
        options: Options,
        random: Random,
        *,
        nodes: Callable[[Sequence[Change[ObservedNode]]], None],
        pods: Callable[[Sequence[Change[ObservedPod]]], None],
        foreign: Callable[[Sequence[Change[ForeignPod]]], None],
        warnings: Callable[[Sequence[Change[PodWarning]]], None],
        listed: Callable[[], None],
    ) -> None:
        node_query = {"labelSelector": options.node_selector} if options.node_selector else {}
        pod_query = {"labelSelector": labels_text(installation_labels(cluster))}
        read = partial(read_node, rules=_rules(cluster, options))
        self.nodes: ObjectCache[ObservedNode] = ObjectCache(read)
        self.pods: ObjectCache[ObservedPod] = ObjectCache(read_pod)
        warning_cache: ObjectCache[PodWarning] = ObjectCache(_read_warning)
        pace = Pace(options.relist_seconds)
        self._nodes = Reflector(
            "nodes", ApiSource(api, "Node", node_query), self.nodes, nodes, pace=pace, random=random
        )
        self._pods = Reflector(
            *("pods", ApiSource(api, "Pod", pod_query), self.pods, pods, listed),
            pace=pace,
            random=random,
        )
        read_foreign_pod = partial(
            read_foreign, ours=installation_labels(cluster), namespace=cluster.namespace
        )
        self._foreign_listed = asyncio.Event()
        self._foreign: Reflector[ForeignPod] = Reflector(
            *(
                "foreign pods",
                ApiSource(api, ANY_POD, _UNFINISHED),
                ObjectCache(read_foreign_pod),
                foreign,
            ),
            self._foreign_listed.set,
            pace=pace,
            random=random,
        )
        self._warnings = Reflector(
            *("warnings", ApiSource(api, "Event", _WARNINGS), warning_cache, warnings),
            pace=pace,
            random=random,
        )
        self._retry_seconds = options.relist_seconds
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the watches, and return when nodes and pods are listed.

        Nodes are listed first, because the state of a node determines whether the state of its pods is trusted.
        """
        await self._start_and_wait(self._nodes.run(), self._nodes.listed)
        await self._start_and_wait(self._watch_foreign(), self._foreign_listed)
        await self._start_and_wait(self._pods.run(), self._pods.listed)
        # no code waits for this watch, so errors of its first list are retried, too
        self._warnings.listed.set()
        self._loops.append(asyncio.ensure_future(self._warnings.run()))

    async def _watch_foreign(self) -> None:
        """Watch foreign pods until cancelled.

        If the server has no permission to list them, it continues without. Kubelets then refuse pods that do not fit.
        """
        while True:
            try:
                await self._foreign.run()
            except Rejected as error:
                log.warning(
                    "foreign pods cannot be listed; their requests are ignored", why=str(error)
                )
                self._foreign_listed.set()
            await asyncio.sleep(self._retry_seconds)

    async def close(self) -> None:
        """Stop watching."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    async def _start_and_wait(self, loop: Coroutine[Any, Any, None], listed: asyncio.Event) -> None:
        """Start a watch and wait for its first list. Raises the error of a watch that has ended."""
        self._loops.append(asyncio.ensure_future(loop))
        waiting = asyncio.ensure_future(listed.wait())
        await asyncio.wait({waiting, *self._loops}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for running in self._loops:
            if running.done():
                running.result()


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the label selector of the objects that have all these labels."""
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _read_warning(body: Body) -> PodWarning:
    return (body.get("involvedObject") or {}).get("uid", ""), cause_of_event(body)


def _rules(cluster: ClusterSettings, options: Options) -> NodeRules:
    return NodeRules(
        group_label=cluster.group_label,
        zone_label=options.zone_label,
        topology=options.topology_labels,
        gpu_resource=cluster.gpu_resource,
        mig_resource=cluster.mig_resource,
        tolerated=tuple((t.key, t.value, t.effect) for t in cluster.tolerations),
    )

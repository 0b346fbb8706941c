"""What is watched of the cluster: nodes, our pods, what other pods hold, and warnings about pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

import structlog

from hai_backend.launch.kubernetes.api import ANY_POD, Api, ApiSource
from hai_backend.launch.kubernetes.causes import Cause, cause_of_event
from hai_backend.launch.kubernetes.errors import Refused
from hai_backend.launch.kubernetes.foreign_pods import ForeignPod, read_foreign
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.pods import PodSeen, read_pod
from hai_backend.launch.manifests.names import selector
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.watch.cache import Change, ObjectCache
from hai_backend.watch.nodes import NodeRules, NodeSeen, read_node
from hai_backend.watch.reflector import Pace, Reflector
from hai_backend.watch.source import Body

log = structlog.get_logger(__name__)
Warned = tuple[str, Cause | None]  # uid of the pod
_NOT_OVER = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_WARNINGS = {"fieldSelector": "involvedObject.kind=Pod,type=Warning"}


class Watching:
    """`begin` returns when nodes and pods are listed; from then on the callbacks hear of every change."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterSettings,
        options: Options,
        random: Random,
        *,
        nodes: Callable[[Sequence[Change[NodeSeen]]], None],
        pods: Callable[[Sequence[Change[PodSeen]]], None],
        foreign: Callable[[Sequence[Change[ForeignPod]]], None],
        warnings: Callable[[Sequence[Change[Warned]]], None],
        listed: Callable[[], None],
    ) -> None:
        chosen = {"labelSelector": options.node_selector} if options.node_selector else {}
        ours = {"labelSelector": labels_text(cluster)}
        read = partial(read_node, rules=_rules(cluster, options))
        self.nodes: ObjectCache[NodeSeen] = ObjectCache(read)
        self.pods: ObjectCache[PodSeen] = ObjectCache(read_pod)
        warned: ObjectCache[Warned] = ObjectCache(_read_warning)
        pace = Pace(options.relist_seconds)
        self._nodes = Reflector(
            "nodes", ApiSource(api, "Node", chosen), self.nodes, nodes, pace=pace, random=random
        )
        self._pods = Reflector(
            *("pods", ApiSource(api, "Pod", ours), self.pods, pods, listed),
            pace=pace,
            random=random,
        )
        others = partial(read_foreign, ours=selector(cluster), namespace=cluster.namespace)
        self._others_known = asyncio.Event()
        self._foreign: Reflector[ForeignPod] = Reflector(
            *("foreign pods", ApiSource(api, ANY_POD, _NOT_OVER), ObjectCache(others), foreign),
            self._others_known.set,
            pace=pace,
            random=random,
        )
        self._warnings = Reflector(
            *("warnings", ApiSource(api, "Event", _WARNINGS), warned, warnings),
            pace=pace,
            random=random,
        )
        self._retry_seconds = options.relist_seconds
        self._loops: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Nodes first: what is said of pods counts by the state of their nodes."""
        await self._first(self._nodes.run(), self._nodes.listed)
        await self._first(self._watch_foreign(), self._others_known)
        await self._first(self._pods.run(), self._pods.listed)
        self._warnings.listed.set()  # nobody waits for it: what is wrong with its first list passes, too
        self._loops.append(asyncio.ensure_future(self._warnings.run()))

    async def _watch_foreign(self) -> None:
        """For ever. Who may not list them goes on: kubelets then refuse what does not fit."""
        while True:
            try:
                await self._foreign.run()
            except Refused as error:
                log.warning("what other pods hold of the nodes is not seen", why=str(error))
                self._others_known.set()
            await asyncio.sleep(self._retry_seconds)

    async def close(self) -> None:
        """Stop."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    async def _first(self, loop: Coroutine[Any, Any, None], listed: asyncio.Event) -> None:
        """Wait for the first list. Raises what has ended a loop: a refusal of the API server, or a bug."""
        self._loops.append(asyncio.ensure_future(loop))
        waiting = asyncio.ensure_future(listed.wait())
        await asyncio.wait({waiting, *self._loops}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for running in self._loops:
            if running.done():
                running.result()


def labels_text(cluster: ClusterSettings) -> str:
    """The label selector of everything that is ours."""
    return ",".join(f"{name}={value}" for name, value in selector(cluster).items())


def _read_warning(body: Body) -> Warned:
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

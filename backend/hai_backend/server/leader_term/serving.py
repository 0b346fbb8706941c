"""Who is answered: clients by the services, agents by one of them, browsers by the proxy before services of tasks."""

from __future__ import annotations

import asyncio

from hai.v1.agent_service_pb2 import ServicesReported
from hai_backend.api.agents.service import AgentService
from hai_backend.api.agents.service_deps import AgentDeps
from hai_backend.api.assemble import ApiDeps, build_call_guard, build_services
from hai_backend.api.containers.containers import NoBrowsers
from hai_backend.api.nodes import labels
from hai_backend.api.nodes.group_capacity import Capacity
from hai_backend.api.scheduling.forecasts import Forecasts
from hai_backend.api.server.router import LocalRoute
from hai_backend.api.server.server import collect_handlers
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tasks.submission import ContainerTerms, Submission
from hai_backend.api.webhooks.service import WebhookDeps
from hai_backend.auth import container_tokens
from hai_backend.controllers.tasks.idle_containers import suspend_if_idle
from hai_backend.domain.errors import NoLeader
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared_dirs import container_of
from hai_backend.domain.task import Task
from hai_backend.environments.haienv import Haienv
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.goodput import Goodput, goodput
from hai_backend.proxy.lazy_proxy import LazyProxy
from hai_backend.proxy.pages.status_page import StatusPage
from hai_backend.proxy.proxy_deps import ProxyDeps as ProxyRooms
from hai_backend.proxy.sessions import Sessions
from hai_backend.server.leader_term.components import Components

_GRACE_SECONDS = 1.0


class Serving:
    """`here` is what the switchboard sends calls to, `proxy` whom the door sends browsers to."""

    def __init__(self, rooms: Components) -> None:
        self._rooms = rooms
        self._forecasting = Forecasts(rooms.scheduling, rooms.policy, rooms.clock)
        self.proxy = self._proxy()
        deps = self._api_deps()
        self._call_guard = build_call_guard(deps)
        services = build_services(deps)
        self.here = LocalRoute(self._call_guard, collect_handlers(services), rooms.tools.fresh)

    async def close(self) -> None:
        """Answer what is being asked, then nobody."""
        if self.proxy is not None:
            await self.proxy.close()
        await self._call_guard.close(NoLeader("this server is leaving; ask again"), _GRACE_SECONDS)
        await self._forecasting.close()

    def _api_deps(self) -> ApiDeps:
        rooms, settings = self._rooms, self._rooms.settings
        return ApiDeps(
            store=rooms.store,
            clock=rooms.clock,
            directory=rooms.directory,
            task_manager=rooms.task_manager,
            scheduling=rooms.scheduling,
            cluster=rooms.cluster,
            logs=rooms.logs,
            usage=rooms.usage,
            goodput=self._goodput,
            workspaces=rooms.workspaces,
            environments=rooms.environments,
            haienv=self._haienv(),
            wheels_directory=settings.common / "wheels",
            workspace_pins=rooms.pins,
            agents=AgentService(self._agent_deps()),
            connected_agents=rooms.hub,
            tunnels=rooms.tunnels,
            service_states=rooms.board,
            browsers=self.proxy or NoBrowsers(),
            forecasts=self._forecasting,
            webhooks=WebhookDeps(
                rooms.webhooks, rooms.notifying, settings.webhook_origins, rooms.clock
            ),
            containers=ContainerTerms(settings.containers_per_user, settings.lifetimes),
            remove_container=self._remove_container,
            policy=rooms.policy,
            timing=settings.timing,
            cluster_name=settings.cluster,
            launcher=rooms.launcher.name,
            certificates=rooms.tools.certificates,
            watched_labels=labels.watched_labels(settings.kubernetes),
            node_ports=range(settings.node_ports_from, settings.node_ports_to + 1),
            image_check=settings.image_check,
            launcher_images=frozenset({"default", *settings.kubernetes.get("images", {})}),
            observe_call=rooms.tools.metrics.call,
            record_push=rooms.tools.metrics.pushed,
            record_wheel_bytes=rooms.tools.metrics.wheels,
        )

    def _agent_deps(self) -> AgentDeps:
        rooms, addresses = self._rooms, self._rooms.tools.addresses
        return AgentDeps(
            task_manager=rooms.task_manager,
            connected_agents=rooms.hub,
            executor=rooms.executor,
            logs=rooms.logs,
            confirm=rooms.store.confirm,
            clock=rooms.clock,
            secret=rooms.tools.secret,
            cluster=rooms.cluster,
            path_in_rank=rooms.shared.path_in_rank,
            environment_pinning=rooms.pinning,
            workspace_path=rooms.pins.path,
            record_checkpoint=rooms.checkpoints.report,
            record_use=rooms.usage.record,
            tunnels=rooms.tunnels,
            base_url=_no_prefix if addresses is None else addresses.base_url,
            record_services=self._record_services,
            check_level=self._level,
            make_owner_token=self._owner_token,
            is_lease_fresh=rooms.tools.fresh,
            message_received=rooms.agent_silence.message_received,
        )

    def _proxy(self) -> LazyProxy | None:
        rooms, addresses = self._rooms, self._rooms.tools.addresses
        if addresses is None:
            return None
        front = LazyProxy(
            ProxyRooms(
                addresses=addresses,
                sessions=Sessions(rooms.tools.secret, rooms.directory, rooms.clock),
                status_page=StatusPage(rooms.board, rooms.scheduling, self._forecasting.starts),
                access=TaskAccess(rooms.task_manager, rooms.directory),
                task_manager=rooms.task_manager,
                tunnels=rooms.tunnels,
                service_states=rooms.board,
                clock=rooms.clock,
                add_audit_rows=rooms.store.add_audit,
                observe=rooms.tools.metrics.call,
            ),
            rooms.tools.certificates,
        )
        rooms.directory.checks.append(front.check)
        return front

    def _haienv(self) -> Haienv:
        pods = self._rooms.settings.kubernetes
        root, nobody = self._rooms.environments.root, int(pods.get("default_uid", 0))
        return Haienv(root, pods=bool(pods), fallback_uid=nobody)

    def _goodput(self, task: Task) -> Goodput:
        rooms = self._rooms
        history = rooms.interruptions.of(task.spec.resource.group)
        return goodput(rooms.checkpoints.with_unsaved(task), history, rooms.clock.now())

    def _record_services(self, task: Task, key: RankKey, said: ServicesReported) -> None:
        rooms = self._rooms
        idle = said.idle_seconds if said.HasField("idle_seconds") else None
        rooms.board.report(key, said.services, idle)
        asked = suspend_if_idle(task, rooms.board.active_at(task), rooms.clock.now())
        if asked is not None:
            rooms.work.run(self._insist(task.id, asked))

    async def _insist(self, task_id: int, event: ev.Event) -> None:
        await self._rooms.task_manager.apply_when_stored(task_id, event)

    async def _owner_token(self, task: Task) -> str:
        return await container_tokens.make_token(
            self._rooms.directory, task, self._rooms.clock.now()
        )

    async def _remove_container(self, task_id: int) -> None:
        await asyncio.to_thread(self._rooms.shared.remove, container_of(task_id))

    def _level(self, task: Task, number: int) -> Priority:
        """What a program may ask for is what its owner may. Counted afresh: groups change, and this is rare."""
        rooms = self._rooms
        rules = Submission(
            rooms.task_manager,
            rooms.store,
            rooms.directory,
            Capacity(rooms.cluster),
            rooms.policy,
            rooms.clock,
        )
        return rules.check_level(task, number)


def _no_prefix(task_id: int, service: str) -> str:
    return "/"

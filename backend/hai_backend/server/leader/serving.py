"""Creates the gRPC services for clients and agents, and the proxy between browsers and services of tasks."""

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
from hai_backend.lifecycle.goodput import Goodput, goodput
from hai_backend.proxy.lazy_proxy import LazyProxy
from hai_backend.proxy.pages.status_page import StatusPage
from hai_backend.proxy.proxy_deps import ProxyDeps
from hai_backend.proxy.sessions import Sessions
from hai_backend.server.leader.components import Components

_GRACE_SECONDS = 1.0


class Serving:
    """`call_route` answers gRPC calls. `proxy` answers browsers; it is None if the server has no port for browsers."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._forecasts = Forecasts(components.scheduling, components.policy, components.clock)
        self.proxy = self._create_proxy()
        deps = self._api_deps()
        self._call_guard = build_call_guard(deps)
        handlers = collect_handlers(build_services(deps))
        self.call_route = LocalRoute(
            self._call_guard, handlers, components.context.is_certain_leader
        )

    async def close(self) -> None:
        """Answer the calls in progress, then refuse all calls."""
        if self.proxy is not None:
            await self.proxy.close()
        await self._call_guard.close(NoLeader("this server is leaving; ask again"), _GRACE_SECONDS)
        await self._forecasts.close()

    def _api_deps(self) -> ApiDeps:
        components, settings = self._components, self._components.settings
        return ApiDeps(
            store=components.store,
            clock=components.clock,
            directory=components.directory,
            task_manager=components.task_manager,
            scheduling=components.scheduling,
            cluster=components.cluster,
            logs=components.logs,
            log_following_begins=components.log_delay.following_begins,
            usage=components.usage,
            gpus=components.gpus,
            goodput=self._goodput,
            with_unsaved=components.checkpoints.with_unsaved,
            save_history=components.save_history,
            workspaces=components.workspaces,
            environments=components.environments,
            haienv=self._haienv(),
            wheels_directory=settings.common / "wheels",
            workspace_pins=components.pins,
            agents=AgentService(self._agent_deps()),
            connected_agents=components.connected_agents,
            tunnels=components.tunnels,
            service_states=components.service_states,
            browsers=self.proxy or NoBrowsers(),
            forecasts=self._forecasts,
            webhooks=WebhookDeps(
                components.webhooks,
                components.notifications,
                settings.webhook_origins,
                components.clock,
            ),
            containers=ContainerTerms(settings.containers_per_user, settings.lifetimes),
            remove_container=self._remove_container,
            policy=components.policy,
            timing=settings.timing,
            cluster_name=settings.cluster,
            launcher=components.launcher.name,
            certificates=components.context.certificates,
            watched_labels=labels.watched_labels(settings.kubernetes),
            node_ports=range(settings.node_ports_from, settings.node_ports_to + 1),
            image_check=settings.image_check,
            launcher_images=frozenset({"default", *settings.kubernetes.get("images", {})}),
            observe_call=components.context.metrics.call,
            observe_streams=components.context.metrics.watched,
            record_push=components.context.metrics.pushed,
            record_wheel_bytes=components.context.metrics.wheels,
        )

    def _agent_deps(self) -> AgentDeps:
        components, addresses = self._components, self._components.context.addresses
        return AgentDeps(
            task_manager=components.task_manager,
            connected_agents=components.connected_agents,
            executor=components.executor,
            logs=components.logs,
            confirm=components.store.require_leader,
            clock=components.clock,
            secret=components.context.run_token_key,
            cluster=components.cluster,
            path_in_rank=components.shared_directories.path_in_rank,
            environment_pinning=components.pinning,
            workspace_path=components.pins.path,
            record_checkpoint=components.checkpoints.report,
            record_use=components.usage.record,
            record_gpus=components.gpus.record,
            tunnels=components.tunnels,
            base_url=_root_path if addresses is None else addresses.base_url,
            record_services=self._report_services,
            check_level=self._check_level,
            make_owner_token=self._make_owner_token,
            is_lease_fresh=components.context.is_certain_leader,
            message_received=components.agent_silence.message_received,
            log_delay=components.log_delay.seconds,
            return_within=components.connected_agents.return_within,
        )

    def _create_proxy(self) -> LazyProxy | None:
        components, addresses = self._components, self._components.context.addresses
        if addresses is None:
            return None
        proxy = LazyProxy(
            ProxyDeps(
                addresses=addresses,
                sessions=Sessions(
                    components.context.run_token_key, components.directory, components.clock
                ),
                status_page=StatusPage(
                    components.service_states, components.scheduling, self._forecasts.starts
                ),
                access=TaskAccess(components.task_manager, components.directory),
                task_manager=components.task_manager,
                tunnels=components.tunnels,
                service_states=components.service_states,
                clock=components.clock,
                add_audit_rows=components.store.add_audit,
                observe=components.context.metrics.call,
            ),
            components.context.certificates,
        )
        components.directory.checks.append(proxy.check)
        return proxy

    def _haienv(self) -> Haienv:
        pods = self._components.settings.kubernetes
        root, default_uid = self._components.environments.root, int(pods.get("default_uid", 0))
        return Haienv(root, pods=bool(pods), fallback_uid=default_uid)

    def _goodput(self, task: Task) -> Goodput:
        components = self._components
        history = components.interruptions.of(task.spec.resource.group)
        return goodput(task, history, components.clock.now())

    def _report_services(self, task: Task, key: RankKey, report: ServicesReported) -> None:
        components = self._components
        idle = report.idle_seconds if report.HasField("idle_seconds") else None
        components.service_states.report(key, report.services, idle)
        event = suspend_if_idle(
            task, components.service_states.active_at(task), components.clock.now()
        )
        if event is not None:
            components.background.run(components.apply_later(task.id, event))

    async def _make_owner_token(self, task: Task) -> str:
        return await container_tokens.make_token(
            self._components.directory, task, self._components.clock.now()
        )

    async def _remove_container(self, task_id: int) -> None:
        await asyncio.to_thread(self._components.shared_directories.remove, container_of(task_id))

    def _check_level(self, task: Task, number: int) -> Priority:
        """Return the priority that a program requests, if its owner may use it. Raises HaiError.

        The rules are created for each call, because calls are rare and the owner's groups may have changed.
        """
        components = self._components
        rules = Submission(
            components.task_manager,
            components.store,
            components.directory,
            Capacity(components.cluster),
            components.policy,
            components.clock,
        )
        return rules.check_level(task, number)


def _root_path(task_id: int, service: str) -> str:
    return "/"

"""The server process. It listens from its start to its end, and has one role at a time: it leads or follows.

A server that leads has a `Leader`, which loads all state, schedules tasks and answers calls. A server that follows
forwards calls to the leader. A role is a coroutine that runs as long as the role lasts, and cleans up when cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NoReturn, Protocol

import structlog

from hai.client.connection.cancellation import CancelledWithin, error_of
from hai_backend.api.server.certificates import CertificateReload, Certificates
from hai_backend.api.server.router import RefusalRoute, Router
from hai_backend.api.server.server import ApiServer
from hai_backend.config import Settings
from hai_backend.controllers.aio.clock import Clock, SystemClock
from hai_backend.domain.errors import Unavailable
from hai_backend.launch.base import Launcher
from hai_backend.metrics.prometheus import Metrics, MetricsServer
from hai_backend.proxy.listener import Listener, Receive, refuse
from hai_backend.server.election.roles import Election, Following, Leading, Role, SingleServer
from hai_backend.server.leader.components import ProcessContext
from hai_backend.server.leader.leader import Leader
from hai_backend.server.listen import (
    advertised_address,
    agent_addresses,
    browser_forwarding,
    grpc_forwarding,
    open_grpc_listener,
    open_http_listener,
    read_certificates,
    service_addresses,
)
from hai_backend.server.paths import (
    HTTP_PORT_FILE,
    read_run_token_key,
    save_port,
    write_server_file,
)
from hai_backend.store.base import Store

log = structlog.get_logger(__name__)

# After this time without a leader, this server reports itself as unhealthy.
_NO_LEADER_SECONDS = 30.0
_STOP_GRACE_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class OpenStore(Protocol):
    """The type of store.connect.open_store."""

    def __call__(self, url: str, epoch: int | None = None) -> Store: ...


class Server:
    """One server. After `start`, `address` is the address of gRPC. `leader` is None while the server does not lead."""

    def __init__(
        self,
        settings: Settings,
        open_store: OpenStore,
        make_launcher: Callable[[], Launcher],
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.metrics.watch_disks(settings.directories)
        self.context = ProcessContext(
            clock or SystemClock(),
            read_run_token_key(settings),
            self.metrics,
            is_certain_leader=lambda: self._election.is_certain(),
        )
        self.leader: Leader | None = None
        self.certificate_reload: CertificateReload | None = None
        self.address = ""
        self._open_store = open_store
        self._make_launcher = make_launcher
        self._router = Router()
        self._election: Election = SingleServer()
        self._first_role_ready = asyncio.Event()
        self._authority_changed = asyncio.Event()
        self._grpc_listener: ApiServer | None = None
        self._http_listener: Listener | None = None
        self._metrics_server: MetricsServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Return when the server answers calls. Raises the error that prevents the start."""
        try:
            await self._listen()
            await self._start_election()
        except BaseException:
            await self.stop()
            raise
        write_server_file(self.settings.home, self._agent_addresses(), self.settings)
        role = str(self._election.role)
        log.info("listening", address=self.address, role=role, version=version("hai-platform"))

    async def run_until(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set. Raises the error that ends the server."""
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({stopping, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for task in self._tasks:
            if task.done() and (error := error_of(task)) is not None:
                raise error

    def reload_files(self) -> None:
        """Reload the certificates. A running server reloads no other files."""
        log.info("asked to look at files again")
        if self.certificate_reload is not None:
            self.certificate_reload.request_reload()

    async def stop(self) -> None:
        """Answer the calls in progress, then stop. Programs of tasks keep running; `hai down` ends them, too."""
        # The role ends before the election. When the server resigns, it has no more writes.
        for task in self._tasks:
            await _cancel(task)
        if self._grpc_listener is not None:
            await self._grpc_listener.stop(_STOP_GRACE_SECONDS)
        if self._http_listener is not None:
            self._http_listener.close()
        if self._metrics_server is not None:
            self._metrics_server.close()

    async def _listen(self) -> None:
        if self.settings.several:
            # `open` migrates the database. The election needs one of its tables.
            store = self._open_store(self.settings.database_url)
            await store.open()
            await store.close()
        certificates = read_certificates(self.settings)
        self.context = replace(self.context, certificates=certificates)
        self._grpc_listener = open_grpc_listener(self.settings, certificates, self._router)
        await self._grpc_listener.set_health(serving=False)
        await self._grpc_listener.start()
        self.address = self._grpc_listener.address
        save_port(self.settings.home, self.address)
        self._start_certificate_reload(certificates)
        self._listen_for_browsers()
        if self.settings.metrics_port:
            port, host = self.settings.metrics_port, self.settings.metrics_host
            self._metrics_server = MetricsServer(self.metrics, port, host)

    def _start_certificate_reload(self, certificates: Certificates | None) -> None:
        if certificates is not None:
            address = advertised_address(self.settings, self.address)
            self.certificate_reload = CertificateReload(
                certificates, address, self.context.clock, self.metrics
            )
            self._authority_changed = self.certificate_reload.authority_changed
            reload = self.certificate_reload.run()
            self._tasks = [asyncio.create_task(reload, name="certificates")]

    def _listen_for_browsers(self) -> None:
        self._http_listener = listener = open_http_listener(self.settings)
        if listener is not None:
            save_port(self.settings.home, listener.address, HTTP_PORT_FILE)
            self.context = replace(
                self.context, addresses=service_addresses(self.settings, listener)
            )
            listener.open()

    def _route_browsers(self, receive: Receive) -> None:
        if self._http_listener is not None:
            self._http_listener.set_receiver(receive)

    async def _start_election(self) -> None:
        if self.settings.several:
            # imported here, because servers on SQLite may run without asyncpg
            from hai_backend.server.election.election import PostgresElection

            address = advertised_address(self.settings, self.address)
            self._election = PostgresElection(self.settings.database_url, address)
        election = asyncio.create_task(self._election.run(), name="election")
        roles = asyncio.create_task(self._run_roles(election), name="role")
        self._tasks = [roles, election, *self._tasks]
        await self.run_until(self._first_role_ready)

    async def _run_roles(self, election: asyncio.Task[None]) -> None:
        """Run one role after another. A role also restarts when the certificate authority changes."""
        while True:
            role = self._election.role
            self._authority_changed.clear()
            role_task = asyncio.create_task(self._run_role(role))
            end_conditions = [
                asyncio.create_task(self._election.wait_for_change(role)),
                # followers and pods must get the new certificate authority
                asyncio.create_task(self._authority_changed.wait()),
            ]
            try:
                await asyncio.wait(
                    {role_task, *end_conditions, election}, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for task in (*end_conditions, role_task):
                    await _cancel(task)
            await self._raise_permanent_error(role_task, election)

    async def _raise_permanent_error(self, *tasks: asyncio.Task[None]) -> None:
        """Raise the error that ended a task.

        After the first role was ready, temporary errors such as an unreachable database are only logged.
        """
        for task in tasks:
            error = error_of(task) if task.done() else None
            if error is None:
                continue
            is_temporary = isinstance(error, Unavailable | CancelledWithin)
            if not is_temporary or not self._first_role_ready.is_set():
                raise error
            log.warning("this server cannot play its role; it tries again", why=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _run_role(self, role: Role) -> NoReturn:
        match role:
            case Leading(epoch):
                await self._lead(epoch)
            case Following(""):
                await self._wait_for_leader()
            case Following(address):
                await self._follow(address)

    async def _lead(self, epoch: int | None) -> NoReturn:
        """Lead until cancelled. Raises Unavailable if a background task ends that must not end."""
        store = self._open_store(self.settings.database_url, epoch)
        self.leader = leader = Leader(
            self.settings, store, self._make_launcher(), self.context, alone=epoch is None
        )
        try:
            await leader.load()
            self._router.route_to(leader.serving.call_route)
            if leader.serving.proxy is not None:
                self._route_browsers(leader.serving.proxy.receive)
            write_server_file(self.settings.common, self._agent_addresses(), self.settings)
            leader.start_loops()
            self.metrics.leading(True)
            log.info("leading", epoch=epoch, unfinished=len(leader.task_manager.unfinished()))
            await self._set_ready()
            await leader.background.broken()
        finally:
            self.metrics.leading(False)
            self._router.route_to(RefusalRoute())
            self._route_browsers(refuse)
            self.leader = None
            await leader.close(deposed=self._election.role != Leading(epoch))

    async def _follow(self, leader: str) -> NoReturn:
        """Forward calls and connections to the leader until cancelled, or refuse calls if that is not secure."""
        forwarding = grpc_forwarding(leader, self.settings, self.context.certificates)
        if forwarding is None:
            why = f"the leading server at {leader} is on another machine: servers need tls_cert, or --insecure"
            log.error("cannot follow", why=why)
            self._router.route_to(RefusalRoute(why))
            await self._set_ready()
            await _wait_forever()
        self._router.route_to(forwarding)
        self._route_browsers(browser_forwarding(leader, self.settings))
        try:
            await self._set_ready()
            await _wait_forever()
        finally:
            self._router.route_to(RefusalRoute())
            self._route_browsers(refuse)
            await forwarding.close()

    async def _wait_for_leader(self) -> NoReturn:
        self._router.route_to(RefusalRoute())
        await asyncio.sleep(_NO_LEADER_SECONDS)
        assert self._grpc_listener is not None
        await self._grpc_listener.set_health(serving=False)
        log.warning("no server leads", seconds=_NO_LEADER_SECONDS)
        await _wait_forever()

    async def _set_ready(self) -> None:
        """Report that the server answers calls."""
        assert self._grpc_listener is not None
        await self._grpc_listener.set_health(serving=True)
        self._first_role_ready.set()

    def _agent_addresses(self) -> str:
        return agent_addresses(self.settings, advertised_address(self.settings, self.address))


async def _wait_forever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("the event is never set")


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.wait({task})

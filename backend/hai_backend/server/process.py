"""One server process: it listens from start to end, and plays one role after the other.

While it leads it has a leader term, which loads, runs the loops and answers. While it follows it passes calls on
to the leader. A role is a coroutine that lasts as long as the role does and clears up when it is cancelled.
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
from hai_backend.server.leader_term.components import Tools
from hai_backend.server.leader_term.leader_term import LeadershipTerm
from hai_backend.server.leadership.roles import Alone, Election, Following, Leading, Role
from hai_backend.server.listen import (
    addresses,
    advertised,
    certificates_of,
    open_door,
    open_gateway,
    told_to_agents,
    way_of_browsers,
    way_to,
)
from hai_backend.server.paths import HTTP_PORT, keep_port, leave_word, run_token_key
from hai_backend.store.base import Store

log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 30.0  # without a leader, until this server counts as unhealthy
_GRACE_SECONDS = 1.0
_AGAIN_SECONDS = 1.0


class OpenStore(Protocol):
    """store.connect.open_store."""

    def __call__(self, url: str, epoch: int | None = None) -> Store: ...


class Server:
    """`start` returns when the server answers; `address` is then where. `leader_term` is there while it leads."""

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
        self.tools = Tools(
            clock or SystemClock(),
            run_token_key(settings),
            self.metrics,
            fresh=lambda: self._election.fresh(),
        )
        self._door: Listener | None = None
        self.leader_term: LeadershipTerm | None = None
        self.renewing: CertificateReload | None = None
        self.address = ""
        self._open_store = open_store
        self._make_launcher = make_launcher
        self._router = Router()
        self._election: Election = Alone()
        self._settled = asyncio.Event()  # the first role is played
        self._trust = asyncio.Event()  # others check servers with another certificate now
        self._listening: ApiServer | None = None
        self._metrics_server: MetricsServer | None = None
        self._work: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen, and play the first role. Raises what keeps it from that."""
        try:
            await self._listen()
            await self._begin()
        except BaseException:
            await self.stop()
            raise
        leave_word(self.settings.home, self._told(), self.settings)
        role = str(self._election.role)
        log.info("listening", address=self.address, role=role, version=version("hai-platform"))

    async def until(self, stop: asyncio.Event) -> None:
        """Return when it shall stop. Raises what keeps it from going on."""
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({stopping, *self._work}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for work in self._work:
            if work.done() and (error := error_of(work)) is not None:
                raise error

    def look_again(self) -> None:
        """Files may have been replaced: certificates, the only ones that are read again."""
        log.info("asked to look at files again")
        if self.renewing is not None:
            self.renewing.request_reload()

    async def stop(self) -> None:
        """Answer what is being asked, then leave. Programs run on; `hai down` ends them too."""
        for work in self._work:  # first the role, then the election: the next leader need not wait
            await _ended(work)
        if self._listening is not None:
            await self._listening.stop(_GRACE_SECONDS)
        if self._door is not None:
            self._door.close()
        if self._metrics_server is not None:
            self._metrics_server.close()

    async def _listen(self) -> None:
        if self.settings.several:  # the election needs its table
            store = self._open_store(self.settings.database_url)
            await store.open()
            await store.close()
        certificates = certificates_of(self.settings)
        self.tools = replace(self.tools, certificates=certificates)
        self._listening = open_gateway(self.settings, certificates, self._router)
        await self._listening.set_health(serving=False)
        await self._listening.start()
        self.address = self._listening.address
        keep_port(self.settings.home, self.address)
        self._renew(certificates)
        self._open_door()
        if self.settings.metrics_port:
            port, host = self.settings.metrics_port, self.settings.metrics_host
            self._metrics_server = MetricsServer(self.metrics, port, host)

    def _renew(self, certificates: Certificates | None) -> None:
        if certificates is not None:
            own = advertised(self.settings, self.address)
            self.renewing = CertificateReload(certificates, own, self.tools.clock, self.metrics)
            self._trust = self.renewing.authority_changed
            self._work = [asyncio.create_task(self.renewing.run(), name="certificates")]

    def _open_door(self) -> None:
        self._door = door = open_door(self.settings)
        if door is not None:
            keep_port(self.settings.home, door.address, HTTP_PORT)
            self.tools = replace(self.tools, addresses=addresses(self.settings, door))
            door.open()

    def _browsers_to(self, receive: Receive) -> None:
        if self._door is not None:
            self._door.set_receiver(receive)

    async def _begin(self) -> None:
        if self.settings.several:
            from hai_backend.server.leadership.election import (
                PostgresElection,  # a laptop never needs it
            )

            own = advertised(self.settings, self.address)
            self._election = PostgresElection(self.settings.database_url, own)
        electing = asyncio.create_task(self._election.run(), name="election")
        playing = asyncio.create_task(self._play(electing), name="role")
        self._work = [playing, electing, *self._work]
        await self.until(self._settled)

    async def _play(self, electing: asyncio.Task[None]) -> None:
        """One role after the other."""
        while True:
            role = self._election.role
            self._trust.clear()
            life = asyncio.create_task(self._as(role))
            ends = [
                asyncio.create_task(self._election.changed(role)),
                asyncio.create_task(self._trust.wait()),  # followers and pods check servers with it
            ]
            try:
                await asyncio.wait({life, *ends, electing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in (*ends, life):
                    await _ended(end)
            await self._look_at(life, electing)

    async def _look_at(self, *works: asyncio.Task[None]) -> None:
        """Raise what ended them, unless it passes: a database or cluster that cannot be reached just now."""
        for work in works:
            error = error_of(work) if work.done() else None
            if error is None:
                continue
            if not isinstance(error, Unavailable | CancelledWithin) or not self._settled.is_set():
                raise error
            log.warning("this server cannot play its role; it tries again", why=str(error))
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _as(self, role: Role) -> NoReturn:
        match role:
            case Leading(epoch):
                await self._lead(epoch)
            case Following(""):
                await self._wait_for_a_leader()
            case Following(address):
                await self._follow(address)

    async def _lead(self, epoch: int | None) -> NoReturn:
        store = self._open_store(self.settings.database_url, epoch)
        self.leader_term = leader_term = LeadershipTerm(
            self.settings, store, self._make_launcher(), self.tools, alone=epoch is None
        )
        try:
            await leader_term.load()
            self._router.route_to(leader_term.answering.here)
            if leader_term.answering.proxy is not None:
                self._browsers_to(leader_term.answering.proxy.receive)
            leave_word(self.settings.common, self._told(), self.settings)
            leader_term.govern()
            self.metrics.leading(True)
            log.info("leading", epoch=epoch, unfinished=len(leader_term.task_manager.unfinished()))
            await self._settle()
            await leader_term.work.broken()
        finally:
            self.metrics.leading(False)
            self._router.route_to(RefusalRoute())
            self._browsers_to(refuse)
            self.leader_term = None
            await leader_term.close(deposed=self._election.role != Leading(epoch))

    async def _follow(self, leader: str) -> NoReturn:
        way = way_to(leader, self.settings, self.tools.certificates)
        if way is None:
            why = f"the leading server at {leader} is on another machine: servers need tls_cert, or --insecure"
            log.error("cannot follow", why=why)
            self._router.route_to(RefusalRoute(why))
            await self._settle()
            await _for_ever()
        self._router.route_to(way)
        self._browsers_to(way_of_browsers(leader, self.settings))
        try:
            await self._settle()
            await _for_ever()
        finally:
            self._router.route_to(RefusalRoute())
            self._browsers_to(refuse)
            await way.close()

    async def _wait_for_a_leader(self) -> NoReturn:
        self._router.route_to(RefusalRoute())
        await asyncio.sleep(_PATIENCE_SECONDS)
        assert self._listening is not None
        await self._listening.set_health(serving=False)
        log.warning("no server leads", seconds=_PATIENCE_SECONDS)
        await _for_ever()

    async def _settle(self) -> None:
        """The role is played."""
        assert self._listening is not None
        await self._listening.set_health(serving=True)
        self._settled.set()

    def _told(self) -> str:
        return told_to_agents(self.settings, advertised(self.settings, self.address))


async def _for_ever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("refuse sets it")


async def _ended(work: asyncio.Task[Any]) -> None:
    """Cancel and wait until it has cleared up."""
    work.cancel()
    await asyncio.wait({work})

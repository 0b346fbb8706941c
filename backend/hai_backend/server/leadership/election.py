"""Which role this server has, and when it changes: the loop around `decide`.

A leader renews its row every second and leads until it cannot: the row is another's, the session is lost, or the
database answers nothing for two seconds. A follower looks three times a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

import structlog

from hai_backend.server.leadership.decide import SILENT_SECONDS, Follow, Oust, Take, step
from hai_backend.server.leadership.roles import Following, Leading, Role
from hai_backend.server.leadership.session import LOST, Session, connected

log = structlog.get_logger(__name__)

_RENEW_SECONDS, _LOOK_SECONDS, _AGAIN_SECONDS = 1.0, 0.3, 0.05


def boot_seconds() -> float:
    """Nobody sets this clock, and it counts while the machine sleeps: a leader that slept is not sure that it leads."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class PostgresElection:
    """Among all servers of the database at `url`; followers reach this one at `address`."""

    def __init__(self, url: str, address: str, steady: Callable[[], float] = boot_seconds) -> None:
        self.role: Role = Following()
        self._url = url
        self._address = address
        self._steady = steady
        self._said = ""
        self._renewed = -inf  # by our own clock, when the renewal was *sent*: only ever too early
        self._lost = asyncio.Event()
        self._changes = asyncio.Condition()

    def fresh(self) -> bool:
        return self._steady() - self._renewed < SILENT_SECONDS

    async def changed(self, role: Role) -> Role:
        async with self._changes:
            await self._changes.wait_for(lambda: self.role != role)
            return self.role

    async def run(self) -> None:
        while True:
            try:
                await self._attend()
            except LOST as error:
                self._say("no session to elect a leader with", repr(error))
            await self._become(Following())
            await asyncio.sleep(_LOOK_SECONDS)

    def _say(self, what: str, why: str) -> None:
        """Once: the database may be away for hours."""
        if what != self._said:
            self._said = what
            log.warning(what, why=why)

    async def _attend(self) -> None:
        """Look and act as long as the session lasts."""
        self._lost.clear()
        async with connected(self._url, self._lost.set) as session:
            while True:
                match step(*await session.look()):
                    case Take():
                        await self._take(session)
                        await self._pause(_AGAIN_SECONDS)
                    case Oust(backend):
                        log.warning("the leader is silent: its session is ended", backend=backend)
                        await self._become(Following())
                        await session.oust(backend)
                        await self._pause(_AGAIN_SECONDS)
                    case Follow(address):
                        await self._become(Following(address))
                        await self._pause(_LOOK_SECONDS)

    async def _take(self, session: Session) -> None:
        sent = self._steady()
        epoch = await session.take(self._address)
        if epoch is None:
            return
        self._renewed = sent
        await self._become(Leading(epoch))
        try:
            await self._lead(session, epoch)
        except LOST as error:
            log.warning("deposed: the session with the lock is lost", epoch=epoch, why=repr(error))
        except asyncio.CancelledError:
            with suppress(*LOST):
                await session.resign(epoch)
            raise
        finally:
            await self._become(Following())

    async def _lead(self, session: Session, epoch: int) -> None:
        """Renew until it fails."""
        while True:
            await self._pause(_RENEW_SECONDS)
            sent = self._steady()
            if not await session.renew(epoch):
                log.warning("deposed: another server has taken over", epoch=epoch)
                return
            self._renewed = sent

    async def _pause(self, seconds: float) -> None:
        """Cut short by the end of the session, which the next statement then tells."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._lost.wait()

    async def _become(self, role: Role) -> None:
        if role == self.role:
            return
        if role != Following():
            self._said = ""  # a database that answers may still take nothing: one that only reads
        log.info("this server has a new role", role=str(role))
        self.role = role
        async with self._changes:
            self._changes.notify_all()

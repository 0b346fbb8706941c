"""The election of one of several servers: takes the lock, renews the row `leader`, or follows the leader.

A leader renews its row every second. It loses its leadership if another server has changed the row, if the session is
lost, or if the database does not answer for two seconds. A follower reads the row three times a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

import structlog

from hai_backend.server.election.lock_session import LOST, Session, open_session
from hai_backend.server.election.next_action import SILENT_SECONDS, Follow, Oust, Take, next_action
from hai_backend.server.election.roles import Following, Leading, Role

log = structlog.get_logger(__name__)

_RENEW_SECONDS, _READ_SECONDS, _RETRY_SECONDS = 1.0, 0.3, 0.05


def boot_seconds() -> float:
    """Return the seconds since boot. This clock cannot be set, and it also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class PostgresElection:
    """Takes part in the election among all servers of a database. Followers reach this server at `address`."""

    def __init__(self, url: str, address: str, clock: Callable[[], float] = boot_seconds) -> None:
        self.role: Role = Following()
        self._url = url
        self._address = address
        self._clock = clock
        self._last_warning = ""
        self._renewed_at = -inf  # when the last successful renewal was sent, by `clock`
        self._session_lost = asyncio.Event()
        self._changes = asyncio.Condition()

    def is_certain(self) -> bool:
        return self._clock() - self._renewed_at < SILENT_SECONDS

    async def wait_for_change(self, role: Role) -> Role:
        async with self._changes:
            await self._changes.wait_for(lambda: self.role != role)
            return self.role

    async def run(self) -> None:
        while True:
            try:
                await self._run_session()
            except LOST as error:
                self._warn_once("no session to elect a leader with", repr(error))
            await self._set_role(Following())
            await asyncio.sleep(_READ_SECONDS)

    def _warn_once(self, message: str, why: str) -> None:
        """Log a warning unless it repeats the last one, because the database may be unavailable for hours."""
        if message != self._last_warning:
            self._last_warning = message
            log.warning(message, why=why)

    async def _run_session(self) -> None:
        """Take part in the election until the session is lost."""
        self._session_lost.clear()
        async with open_session(self._url, self._session_lost.set) as session:
            while True:
                match next_action(*await session.read_state()):
                    case Take():
                        await self._take(session)
                        await self._pause(_RETRY_SECONDS)
                    case Oust(backend):
                        log.warning("the leader is silent: its session is ended", backend=backend)
                        await self._set_role(Following())
                        await session.oust(backend)
                        await self._pause(_RETRY_SECONDS)
                    case Follow(address):
                        await self._set_role(Following(address))
                        await self._pause(_READ_SECONDS)

    async def _take(self, session: Session) -> None:
        """Try to take the lock, and lead as long as possible. Resign if the server stops."""
        sent = self._clock()
        epoch = await session.take(self._address)
        if epoch is None:
            return
        self._renewed_at = sent
        await self._set_role(Leading(epoch))
        try:
            await self._lead(session, epoch)
        except LOST as error:
            log.warning("deposed: the session with the lock is lost", epoch=epoch, why=repr(error))
        except asyncio.CancelledError:
            with suppress(*LOST):
                await session.resign(epoch)
            raise
        finally:
            await self._set_role(Following())

    async def _lead(self, session: Session, epoch: int) -> None:
        """Renew the row until another server leads. Raises one of LOST."""
        while True:
            await self._pause(_RENEW_SECONDS)
            sent = self._clock()
            if not await session.renew(epoch):
                log.warning("deposed: another server has taken over", epoch=epoch)
                return
            self._renewed_at = sent

    async def _pause(self, seconds: float) -> None:
        """Sleep, but return at once when the session is lost. The next statement then raises an error."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._session_lost.wait()

    async def _set_role(self, role: Role) -> None:
        if role == self.role:
            return
        if role != Following():
            # Following() does not reset the warning, because a read-only database answers but elects no leader.
            self._last_warning = ""
        log.info("this server has a new role", role=str(role))
        self.role = role
        async with self._changes:
            self._changes.notify_all()

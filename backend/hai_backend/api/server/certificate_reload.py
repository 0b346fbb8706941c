"""Looks whether the server's certificate was replaced, and says when nobody does so in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn

import structlog

from hai_backend.api.server.certificates import Certificates, distrust
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.errors import Invalid
from hai_backend.metrics.prometheus import Metrics

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 10.0  # the files may lie on storage that tells nobody of changes
_DAY = 24 * 3600.0
_SOON = 14 * _DAY


class CertificateReload:
    """`address` is where others reach this server; `authority` is set when they check it with something else."""

    def __init__(
        self, certificates: Certificates, address: str, clock: Clock, metrics: Metrics
    ) -> None:
        self.authority = asyncio.Event()
        self._certificates = certificates
        self._address = address
        self._clock = clock
        self._metrics = metrics
        self._soon = asyncio.Event()
        self._said = ""
        self._warned = 0.0
        self._judge()

    async def run(self) -> NoReturn:
        """Look, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._soon.wait()
            self._soon.clear()
            await self.look()

    def look_soon(self) -> None:
        """Not only when it is time."""
        self._soon.set()

    async def look(self) -> None:
        """Once. Storage may let it wait."""
        try:
            if changed := await asyncio.to_thread(self._certificates.look):
                self._follow(changed)
            self._said = ""
        except (Invalid, OSError) as error:  # ssl's errors are among the latter
            self._refuse(str(error))
        self._mind_expiry()

    def _refuse(self, why: str) -> None:
        if why != self._said:
            self._said = why
            log.warning("the certificate cannot be read anew; the one of before stays", why=why)

    def _follow(self, changed: Sequence[str]) -> None:
        log.info("the certificate was read anew", files=changed, expires=self._expires())
        self._warned = 0.0
        self._judge()
        if self._certificates.authority in changed:
            self.authority.set()

    def _judge(self) -> None:
        if why := distrust(self._certificates, self._address.rpartition(":")[0].strip("[]")):
            what = "agents and other servers will not trust this one"
            log.warning(what, address=self._address, why=why)
        self._mind_expiry()

    def _mind_expiry(self) -> None:
        """Once a day, from two weeks before."""
        expires, now = self._certificates.shown.expires, self._clock.now()
        self._metrics.certificate(expires)
        if expires - now < _SOON and now - self._warned >= _DAY:
            self._warned = now
            what = "expires soon" if now < expires else "has expired"
            file = self._certificates.cert
            log.warning(f"the certificate {what}: replace its file", file=file, at=self._expires())

    def _expires(self) -> str:
        return datetime.fromtimestamp(self._certificates.shown.expires, UTC).isoformat()

"""Identifies visitors of the proxy by one-time links, and by the sessions that links are exchanged for."""

from __future__ import annotations

import secrets
from collections import OrderedDict

from hai_backend.auth import browser_sessions
from hai_backend.auth.browser_sessions import Pass
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.errors import Unauthenticated

LINK_SECONDS = 60.0
SESSION_SECONDS = 12 * 3600
_LINK, _SESSION = "link", "session"
_MAX_UNUSED_LINKS = 10_000


class Sessions:
    """Signs links and sessions. Links are valid in this process only. Sessions survive a restart."""

    def __init__(self, secret: bytes, directory: Directory, clock: Clock) -> None:
        self._key = browser_sessions.signing_key(secret)
        self._directory = directory
        self._clock = clock
        self._unused: OrderedDict[str, None] = OrderedDict()

    def link_key(self, identity: Identity, task_id: int) -> str:
        """Return a key that is valid once, for a minute."""
        once = secrets.token_urlsafe(16)
        self._unused[once] = None
        while len(self._unused) > _MAX_UNUSED_LINKS:
            self._unused.popitem(last=False)
        return self._sign(_LINK, identity.name, identity.token_id, task_id, LINK_SECONDS, once)

    def start_session(self, task_id: int, link_key: str) -> str | None:
        """Exchange a link for a session. Return None if the link is invalid or was used before."""
        credential = browser_sessions.verify(self._key, _LINK, link_key, self._clock.now())
        if (
            credential is None
            or credential.task_id != task_id
            or credential.once not in self._unused
        ):
            return None
        del self._unused[credential.once]
        return self._sign(_SESSION, credential.user, credential.token_id, task_id, SESSION_SECONDS)

    def renew(self, task_id: int, session: str) -> str | None:
        """Return a new session in the second half of a session's lifetime, otherwise None."""
        now = self._clock.now()
        credential = browser_sessions.verify(self._key, _SESSION, session, now)
        if credential is None or credential.task_id != task_id:
            return None
        if credential.expires_at - now > SESSION_SECONDS / 2:
            return None
        return self._sign(_SESSION, credential.user, credential.token_id, task_id, SESSION_SECONDS)

    def visitor(self, task_id: int, session: str) -> Identity | None:
        """Return the identity of a session, or None if the session or its token is no longer valid."""
        now = self._clock.now()
        credential = browser_sessions.verify(self._key, _SESSION, session, now) if session else None
        if credential is None or credential.task_id != task_id:
            return None
        try:
            identity = self._directory.identity_of(credential.token_id, now)
        except Unauthenticated:
            return None
        return identity if identity.name == credential.user else None

    def _sign(
        self, purpose: str, user: str, token_id: int, task_id: int, seconds: float, once: str = ""
    ) -> str:
        expires_at = self._clock.now() + seconds
        credential = Pass(purpose, user, token_id, task_id, expires_at, once)
        return browser_sessions.sign(self._key, credential)

"""Who a browser is: a link that is good once is traded for a cookie, and the cookie is asked for ever after."""

from __future__ import annotations

import re

from aiohttp import web

from hai_backend.api.server import audit
from hai_backend.api.server.refused_logins import RefusedLogins
from hai_backend.proxy.addresses import Place
from hai_backend.proxy.dependencies import ProxyDeps
from hai_backend.proxy.headers import cookie_value, set_cookie
from hai_backend.proxy.replies import PRIVATE, page
from hai_backend.proxy.sessions import SESSION_SECONDS
from hai_backend.store.base import AuditRow

_COOKIE, _SECURE_COOKIE = "hai_session", "__Host-hai_session"
_METHOD, _REFUSED = audit.Action.BROWSER_LOGIN, "PERMISSION_DENIED"
_NAME = re.compile(r"[a-z0-9-]{1,63}")


class Login:
    """Reads and gives cookies."""

    def __init__(self, rooms: ProxyDeps) -> None:
        self._r = rooms
        self._refused = RefusedLogins(rooms.record, rooms.clock, _METHOD, _REFUSED)

    @property
    def cookie(self) -> str:
        """Its name."""
        whole_host = self._r.addresses.secure and not self._r.addresses.by_path
        return _SECURE_COOKIE if whole_host else _COOKIE

    def session(self, request: web.Request) -> str:
        """What the browser shows; empty: nothing."""
        return cookie_value("; ".join(request.headers.getall("Cookie", [])), self.cookie)

    async def login(self, request: web.Request, place: Place) -> web.Response:
        """Trade a link for a cookie. A link that somebody else has sent leads only to its own task."""
        if request.method != "GET":  # would use up the link
            return page(request, "link", 403)
        session = self._r.sessions.begin(place.task_id, request.query.get("key", ""))
        if session is None:
            self._r.observe(_METHOD, _REFUSED, 0.0)
            self._refused.add(request.remote or "unknown")
            return page(request, "link", 403)
        self._r.observe(_METHOD, "OK", 0.0)
        await self._record(place, session)
        wanted = place.service or request.query.get("service", "")
        to = self._r.addresses.base_url(place.task_id, wanted if _NAME.fullmatch(wanted) else "")
        answer = web.Response(status=303, headers={**PRIVATE, "Location": to})
        answer.headers["Set-Cookie"] = self._set_cookie(place, session)
        return answer

    async def _record(self, place: Place, session: str) -> None:
        """A browser that signs in leaves a row of the audit."""
        visitor = self._r.sessions.visitor(place.task_id, session)
        if visitor is None:
            return
        now, task = self._r.clock.now(), str(place.task_id)
        row = AuditRow(now, visitor.actor, _METHOD, task, f"service={place.service!r}", "OK")
        await audit.store(self._r.record, row)

    async def close(self) -> None:
        """Record what is not recorded yet."""
        await self._refused.close()

    def renewed(self, place: Place, session: str) -> str:
        """The header that lets a session go on, once much of its time is over; else empty."""
        fresh = self._r.sessions.renewed(place.task_id, session)
        return self._set_cookie(place, fresh) if fresh else ""

    def _set_cookie(self, place: Place, session: str) -> str:
        path = self._r.addresses.cookie_path(place.task_id)
        secure = self._r.addresses.secure
        return set_cookie(self.cookie, session, path, SESSION_SECONDS, secure=secure)

"""Authenticates browsers: exchanges a one-time link for a cookie that identifies all later requests."""

from __future__ import annotations

import re

from aiohttp import web

from hai_backend.api.audit.refused_logins import RefusedLogins
from hai_backend.api.audit.rows import Action, store_row
from hai_backend.proxy.addresses import Target
from hai_backend.proxy.headers import cookie_value, set_cookie
from hai_backend.proxy.pages.responses import PRIVATE, static_page
from hai_backend.proxy.proxy_deps import ProxyDeps
from hai_backend.proxy.sessions import SESSION_SECONDS
from hai_backend.store.base import AuditRow

_COOKIE, _SECURE_COOKIE = "hai_session", "__Host-hai_session"
_METHOD, _REFUSED = Action.BROWSER_LOGIN, "PERMISSION_DENIED"
_NAME = re.compile(r"[a-z0-9-]{1,63}")


class Login:
    """Reads and sets the session cookie."""

    def __init__(self, deps: ProxyDeps) -> None:
        self._deps = deps
        self._refused_logins = RefusedLogins(deps.add_audit_rows, deps.clock, _METHOD, _REFUSED)

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        is_host_only = self._deps.addresses.secure and not self._deps.addresses.by_path
        return _SECURE_COOKIE if is_host_only else _COOKIE

    def session(self, request: web.Request) -> str:
        """Return the session of a request. Empty if there is none."""
        return cookie_value("; ".join(request.headers.getall("Cookie", [])), self.cookie)

    async def login(self, request: web.Request, target: Target) -> web.Response:
        """Exchange a link for a cookie. The link is valid for its own task only."""
        if request.method != "GET":  # such a request would use up the link
            return static_page(request, "link", 403)
        session = self._deps.sessions.start_session(target.task_id, request.query.get("key", ""))
        if session is None:
            self._deps.observe(_METHOD, _REFUSED, 0.0)
            self._refused_logins.add(request.remote or "unknown")
            return static_page(request, "link", 403)
        self._deps.observe(_METHOD, "OK", 0.0)
        await self._record(target, session)
        service = target.service or request.query.get("service", "")
        location = self._deps.addresses.base_url(
            target.task_id, service if _NAME.fullmatch(service) else ""
        )
        response = web.Response(status=303, headers={**PRIVATE, "Location": location})
        response.headers["Set-Cookie"] = self._set_cookie(target, session)
        return response

    async def _record(self, target: Target, session: str) -> None:
        """Record a login in the audit log."""
        visitor = self._deps.sessions.visitor(target.task_id, session)
        if visitor is None:
            return
        now, task = self._deps.clock.now(), str(target.task_id)
        row = AuditRow(now, visitor.actor, _METHOD, task, f"service={target.service!r}", "OK")
        await store_row(self._deps.add_audit_rows, row)

    async def close(self) -> None:
        """Record the refused logins that are not recorded yet."""
        await self._refused_logins.close()

    def renewal_cookie(self, target: Target, session: str) -> str:
        """Return the header that renews a session. Empty in the first half of the session's lifetime."""
        renewed_session = self._deps.sessions.renew(target.task_id, session)
        return self._set_cookie(target, renewed_session) if renewed_session else ""

    def _set_cookie(self, target: Target, session: str) -> str:
        path = self._deps.addresses.cookie_path(target.task_id)
        secure = self._deps.addresses.secure
        return set_cookie(self.cookie, session, path, SESSION_SECONDS, secure=secure)

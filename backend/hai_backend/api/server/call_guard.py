"""Guards every call: checks the token, the permissions and the limits of the caller, converts errors to statuses,
reports the call to the metrics, and stores an audit row for each call that changes something.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import grpc
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc import aio

from hai.client.connection.cancellation import cancelled_only_from_outside
from hai_backend.api.audit import rows as audit
from hai_backend.api.audit.refused_logins import RefusedLogins, host_of
from hai_backend.api.request.limits import DEFAULTS, CallLimits
from hai_backend.api.request.unknown_fields import refuse_unknown
from hai_backend.api.server import errors
from hai_backend.api.server.call_context import Context, Handler, set_caller
from hai_backend.api.server.call_limits import CallLimiter
from hai_backend.api.server.handler_wrapper import (
    CheckAdmitted,
    StreamCloser,
    UnaryMethod,
    Undecodable,
    undecodable_error,
    wrap,
)
from hai_backend.api.server.methods import RULES, Credential, Rule
from hai_backend.auth import permissions
from hai_backend.auth.permissions import Identity
from hai_backend.auth.tokens import parse_bearer
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.aio.shield import shielded
from hai_backend.domain.accounts.user import TokenScope
from hai_backend.domain.errors import Denied, Unavailable
from hai_backend.store.base import AuditRow

_UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED.name

Observe = Callable[[str, str, float], None]  # method, code, seconds


class Identifier(Protocol):
    """The method of auth.Directory that the guard needs."""

    def identify(self, secret: str, now: float) -> Identity: ...


@dataclass(slots=True)
class _Call:
    method: str
    rule: Rule | None
    request: Any  # a message, Undecodable, or the iterator of a stream of requests
    secret: str = ""  # of the user's token
    identity: Identity | None = None
    response: Any = None  # of a unary call
    code: str = "CANCELLED"

    @property
    def mutates(self) -> bool:
        return self.rule is not None and self.rule.mutates

    @property
    def must_be_understood(self) -> bool:
        """Whether each field matters. A dry run is such a call, too: its answer depends on all fields."""
        return self.rule is not None and self.rule.scope is not TokenScope.READ

    def has_audit_row(self, identity: Identity) -> bool:
        if self.rule is None or not self.rule.mutates:
            return False
        # A timeline names the user but not the holder of the token
        in_timeline = self.rule.in_timeline and not identity.holder
        needs_no_row = in_timeline or getattr(self.request, "validate_only", False)
        return not (needs_no_row and self.code == "OK")


class CallGuard:
    """Wraps the handlers of all services of this server."""

    def __init__(
        self,
        directory: Identifier,
        add_audit_rows: audit.AddRows,
        clock: Clock,
        *,
        limits: CallLimits = DEFAULTS,
        observe: Observe = lambda method, code, seconds: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._add_audit_rows = add_audit_rows
        self._clock = clock
        self._limits = limits
        self._observe = observe
        self._monotonic = monotonic
        self._limiter = CallLimiter(limits, monotonic)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}  # by method: original and wrapper
        self._running: set[asyncio.Task[Any]] = set()
        self._stream_closer = StreamCloser()
        self._refused_logins = RefusedLogins(
            add_audit_rows, clock, audit.Action.AUTHENTICATE, _UNAUTHENTICATED
        )

    def wrap_handler(self, method: str, handler: Handler) -> Handler:
        """Wrap the handler of a method. Return the existing wrapper if the handler is the same."""
        pair = self._wrapped.get(method)
        if pair is None or pair[0] is not handler:
            pair = self._wrapped[method] = (handler, self._wrap(method, handler))
        return pair[1]

    def check_open_streams(self) -> None:
        """End the streams of users who lost the permission for them."""
        self._stream_closer.check()

    async def close(self, error: Exception, grace_seconds: float) -> None:
        """End all streams with this error, and wait up to `grace_seconds` for running calls."""
        self._stream_closer.close(error)
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)
        await self._refused_logins.close()

    def _wrap(self, method: str, handler: Handler) -> Handler:
        rule = RULES.get(method)

        def wrap_unary(unary_method: UnaryMethod) -> UnaryMethod:
            async def run(request: Any, context: Context) -> Any:
                return await self._run_unary(_Call(method, rule, request), unary_method, context)

            return run

        return wrap(
            handler,
            wrap_unary,
            lambda request, context: self._guard_stream(_Call(method, rule, request), context),
            self._stream_closer,
        )

    async def _run_unary(self, call: _Call, method: UnaryMethod, context: Context) -> Any:
        async with self._guard(call, context):
            work = method(call.request, context)
            work = self._shield(call.method, work) if call.mutates else work
            call.response = await self._limit_duration(work)
        return call.response

    @asynccontextmanager
    async def _guard_stream(self, call: _Call, context: Context) -> AsyncIterator[CheckAdmitted]:
        async with self._guard(call, context):
            with self._limiter.count_stream(call.identity.name) if call.identity else nullcontext():
                yield lambda: self._recheck(call)

    @asynccontextmanager
    async def _guard(self, call: _Call, context: Context) -> AsyncIterator[None]:
        """Admit a call. At its end report it to the metrics, store its audit row, and send its error."""
        began_at, descriptions = self._monotonic(), audit.collect_descriptions()
        refusal: status_pb2.Status | None = None
        handling = self._add_running(asyncio.current_task())  # until the audit row is stored
        try:
            self._admit(call, context)
            with cancelled_only_from_outside(call.method):  # else grpc would send no status
                yield
            call.code = "OK"
        except aio.AbortError:
            call.code = _code_name(context)
            raise
        except Exception as error:
            call.code = errors.code_of(error).name
            refusal = errors.status_of(error, call.method)
        finally:
            self._observe(call.method, call.code, self._monotonic() - began_at)
            if call.identity is not None and call.has_audit_row(call.identity):
                row = self._make_row(call, call.identity, descriptions)
                await audit.store_row(self._add_audit_rows, row)
            if call.code == _UNAUTHENTICATED:
                self._refused_logins.add(host_of(context.peer()))
            self._running.discard(handling)
        if refusal is not None:
            await abort(context, refusal)

    def _admit(self, call: _Call, context: Context) -> None:
        identity = call.identity = self._identify(call, context)
        if call.rule is not None and identity is not None:
            rule = call.rule
            permissions.require_permission(
                identity, rule.scope, rule.role, _short_name(call.method), rule.right
            )
            self._limiter.count_call(identity.name)
            set_caller(identity)
        if isinstance(call.request, Undecodable):
            raise undecodable_error()
        if call.must_be_understood and isinstance(call.request, Message):
            refuse_unknown(call.request)

    def _identify(self, call: _Call, context: Context) -> Identity | None:
        if call.rule is None:
            problem = f"{call.method} has no access rule, so nobody may call it"
            raise Denied(problem, reason="NO_RULE")
        if call.rule.credential is not Credential.USER_TOKEN:
            return None
        call.secret = parse_bearer(_authorization(context))
        return self._directory.identify(call.secret, self._clock.now())

    def _recheck(self, call: _Call) -> None:
        """Raise if the caller has lost a permission since the start of the stream, which still uses it."""
        if call.identity is None:
            return
        now = self._directory.identify(call.secret, self._clock.now())
        if lost := permissions.lost_permissions(call.identity, now):
            raise Unavailable(f"{now.name} lost {lost}; call again", reason="RIGHTS_LOST")

    async def _limit_duration(self, work: Coroutine[Any, Any, Any]) -> Any:
        seconds = self._limits.call_seconds
        try:
            async with asyncio.timeout(seconds) as timer:
                return await work
        except TimeoutError:
            if not timer.expired():
                raise
        raise errors.Expired(f"the call took longer than {seconds:g} s; it may still take effect")

    async def _shield(self, method: str, work: Coroutine[Any, Any, Any]) -> Any:
        """Finish a change even if its caller hangs up. In this case `status_of` logs an unexpected error."""
        task = self._add_running(asyncio.create_task(work))
        task.add_done_callback(self._running.discard)
        return await shielded(task, lambda error: errors.status_of(error, method))

    def _add_running(self, task: asyncio.Task[Any] | None) -> asyncio.Task[Any]:
        assert task is not None
        self._running.add(task)
        return task

    def _make_row(self, call: _Call, identity: Identity, descriptions: Sequence[str]) -> AuditRow:
        request = call.request if isinstance(call.request, Message) else None
        return AuditRow(
            time=self._clock.now(),
            actor=identity.actor,
            method=_short_name(call.method),
            resource="" if request is None else audit.resource_of(request, call.response),
            what="; ".join(descriptions) or _describe(call.request),
            code=call.code,
        )


def _short_name(method: str) -> str:
    return method.rpartition("/")[2]


def _describe(request: Any) -> str:
    if isinstance(request, Undecodable):
        return "unreadable"
    return audit.describe_request(request) if isinstance(request, Message) else ""


def _authorization(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None


def _code_name(context: Context) -> str:
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((c.name for c in grpc.StatusCode if c.value[0] == code), "UNKNOWN")


async def abort(context: Context, status: status_pb2.Status) -> NoReturn:
    """End a call with a status and its details."""
    code = next(c for c in grpc.StatusCode if c.value[0] == status.code)
    trailer = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, status.message, trailing_metadata=trailer)
    raise AssertionError("abort always raises")

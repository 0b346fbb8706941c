"""The gate: every call passes it. It asks for the token, holds the caller to rights and limits, turns errors into
statuses, counts, and leaves a row of audit for whatever changes something.
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
from hai_backend.api.request.limits import DEFAULTS, CallLimits
from hai_backend.api.request.unknown_fields import refuse_unknown
from hai_backend.api.server import audit, caller, errors
from hai_backend.api.server.call_limits import CallLimiter
from hai_backend.api.server.handler_wrapper import (
    Admitted,
    Closing,
    Context,
    Handler,
    Unary,
    Undecodable,
    unreadable,
    wrap,
)
from hai_backend.api.server.methods import RULES, Door, Rule
from hai_backend.api.server.refused_logins import RefusedLogins, host_of
from hai_backend.auth import permissions
from hai_backend.auth.permissions import Identity
from hai_backend.auth.tokens import bearer
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.aio.shield import shielded
from hai_backend.domain.accounts.user import TokenScope
from hai_backend.domain.errors import Denied, Unavailable
from hai_backend.store.base import AuditRow

_UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED.name

Observe = Callable[[str, str, float], None]  # method, code, seconds


class Identifies(Protocol):
    """The one verb of auth.Directory that the gate needs."""

    def identify(self, secret: str, now: float) -> Identity: ...


@dataclass(slots=True)
class _Call:
    """One call on its way through the gate."""

    method: str
    rule: Rule | None
    request: Any  # a message, none that can be read, or the stream of those that come
    identity: Identity | None = None
    answer: Any = None  # of a call that is no stream
    code: str = "CANCELLED"

    @property
    def changes(self) -> bool:
        return self.rule is not None and self.rule.mutates

    @property
    def acts(self) -> bool:
        """It is no mere look: a dry run asks, too, what would become of all that is in it."""
        return self.rule is not None and self.rule.scope is not TokenScope.READ

    def is_recorded(self, identity: Identity) -> bool:
        if self.rule is None or not self.rule.mutates:
            return False
        in_timeline = self.rule.in_timeline and not identity.holder  # it names the user only
        told_elsewhere = in_timeline or getattr(self.request, "validate_only", False)
        return not (told_elsewhere and self.code == "OK")


class Gate:
    """Every call to the services of this server goes through it; it lives as long as they do."""

    def __init__(
        self,
        directory: Identifies,
        record: audit.Record,
        clock: Clock,
        *,
        limits: CallLimits = DEFAULTS,
        observe: Observe = lambda method, code, seconds: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._record = record
        self._clock = clock
        self._limits = limits
        self._observe = observe
        self._monotonic = monotonic
        self._admission = CallLimiter(limits, monotonic)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._closing = Closing()
        self._refused = RefusedLogins(record, clock, audit.Action.AUTHENTICATE, _UNAUTHENTICATED)

    def guarded(self, method: str, handler: Handler) -> Handler:
        """Wrap the handler of a call; the same handler is wrapped once."""
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = self._wrapped[method] = (handler, self._wrap(method, handler))
        return known[1]

    def check(self) -> None:
        """Somebody was let in and may not be any more: their streams end now."""
        self._closing.check()

    async def close(self, why: Exception, grace: float) -> None:
        """End all streams with this error, and let running calls finish for `grace` seconds."""
        self._closing.close(why)
        if self._running:
            await asyncio.wait(self._running, timeout=grace)
        await self._refused.close()

    def _wrap(self, method: str, handler: Handler) -> Handler:
        rule = RULES.get(method)

        def unary(inner: Unary) -> Unary:
            async def call(request: Any, context: Context) -> Any:
                return await self._unary(_Call(method, rule, request), inner, context)

            return call

        return wrap(
            handler,
            unary,
            lambda request, context: self._stream(_Call(method, rule, request), context),
            self._closing,
        )

    async def _unary(self, call: _Call, inner: Unary, context: Context) -> Any:
        async with self._passing(call, context):
            work = inner(call.request, context)
            work = self._finished(call.method, work) if call.changes else work
            call.answer = await self._limited(work)
        return call.answer

    @asynccontextmanager
    async def _stream(self, call: _Call, context: Context) -> AsyncIterator[Admitted]:
        async with self._passing(call, context):
            with self._admission.stream(call.identity.name) if call.identity else nullcontext():
                yield lambda: self._recheck(call, context)

    @asynccontextmanager
    async def _passing(self, call: _Call, context: Context) -> AsyncIterator[None]:
        """Let a call in; when it has ended count it, keep its row of audit, and answer with its error."""
        began, told = self._monotonic(), audit.listen()
        refusal: status_pb2.Status | None = None
        handling = self._begun(asyncio.current_task())  # until its row is written
        try:
            self._let_in(call, context)
            with cancelled_only_from_outside(call.method):  # gRPC would never answer
                yield
            call.code = "OK"
        except aio.AbortError:
            call.code = _code_name(context)
            raise
        except Exception as error:
            call.code = errors.code_of(error).name
            refusal = errors.status_of(error, call.method)
        finally:
            self._observe(call.method, call.code, self._monotonic() - began)
            if call.identity is not None and call.is_recorded(call.identity):
                await audit.store(self._record, self._row(call, call.identity, told))
            if call.code == _UNAUTHENTICATED:
                self._refused.add(host_of(context.peer()))
            self._running.discard(handling)
        if refusal is not None:
            await abort(context, refusal)

    def _let_in(self, call: _Call, context: Context) -> None:
        call.identity = self._identify(call, context)
        if call.rule is not None and call.identity is not None:
            self._admit(call.method, call.rule, call.identity)
        if isinstance(call.request, Undecodable):
            raise unreadable()
        if call.acts and isinstance(call.request, Message):
            refuse_unknown(call.request)

    def _identify(self, call: _Call, context: Context) -> Identity | None:
        if call.rule is None:
            problem = f"{call.method} has no rule of access, so nobody may call it"
            raise Denied(problem, reason="NO_RULE")
        if call.rule.door is not Door.TOKEN:
            return None
        return self._directory.identify(bearer(_authorization(context)), self._clock.now())

    def _recheck(self, call: _Call, context: Context) -> None:
        """What a stream shows was chosen by what its caller could do when it began."""
        before, now = call.identity, self._identify(call, context)
        if (
            now is not None
            and before is not None
            and (less := permissions.lost_permissions(before, now))
        ):
            raise Unavailable(f"{now.name} is without {less} now; ask again", reason="RIGHTS_LOST")

    def _admit(self, method: str, rule: Rule, identity: Identity) -> None:
        permissions.admit(identity, rule.scope, rule.role, _verb(method), rule.right)
        self._admission.call(identity.name)
        caller.enter(identity)

    async def _limited(self, work: Coroutine[Any, Any, Any]) -> Any:
        seconds = self._limits.call_seconds
        try:
            async with asyncio.timeout(seconds) as timer:
                return await work
        except TimeoutError:
            if not timer.expired():
                raise
        raise errors.Expired(f"the call took longer than {seconds:g} s; it may still take effect")

    async def _finished(self, method: str, work: Coroutine[Any, Any, Any]) -> Any:
        """A caller who hangs up must not stop a change half way; what we did not expect of it is for the log then."""
        task = self._begun(asyncio.create_task(work))
        task.add_done_callback(self._running.discard)
        return await shielded(task, lambda error: errors.status_of(error, method))

    def _begun(self, task: asyncio.Task[Any] | None) -> asyncio.Task[Any]:
        assert task is not None
        self._running.add(task)
        return task

    def _row(self, call: _Call, identity: Identity, told: Sequence[str]) -> AuditRow:
        request = call.request if isinstance(call.request, Message) else None
        return AuditRow(
            time=self._clock.now(),
            actor=identity.actor,
            method=_verb(call.method),
            resource="" if request is None else audit.resource(request, call.answer),
            what="; ".join(told) or _asked(call.request),
            code=call.code,
        )


def _verb(method: str) -> str:
    return method.rpartition("/")[2]


def _asked(request: Any) -> str:
    """What a row says of a call that tells nothing of itself."""
    if isinstance(request, Undecodable):
        return "unreadable"
    return audit.what(request) if isinstance(request, Message) else ""


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
    """End a call with a whole status."""
    code = next(c for c in grpc.StatusCode if c.value[0] == status.code)
    trailer = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, status.message, trailing_metadata=trailer)
    raise AssertionError("abort always raises")

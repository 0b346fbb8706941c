"""The gate: every call passes it. It asks for the token, holds the caller to rights and limits, turns errors into
statuses, counts, and leaves a row of audit for whatever changes something.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from typing import Any, NoReturn, Protocol

import grpc
import structlog
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc import aio

from hai_backend.auth import permissions
from hai_backend.auth.permissions import Identity
from hai_backend.auth.tokens import bearer
from hai_backend.domain.errors import Denied, HaiError, Unavailable
from hai_backend.loops.clock import Clock
from hai_backend.services import audit, caller, errors
from hai_backend.services.admission import Admission
from hai_backend.services.limits import DEFAULTS, CallLimits
from hai_backend.services.methods import RULES, Door, Rule
from hai_backend.services.wrapping import (
    Admitted,
    Closing,
    Context,
    Handler,
    Unary,
    Undecodable,
    unreadable,
    wrap,
)
from hai_backend.store.base import AuditRow

log = structlog.get_logger()

Observe = Callable[[str, str, float], None]  # method, code, seconds
Record = Callable[[Sequence[AuditRow]], Awaitable[None]]  # returns when the rows are durable


class Identifies(Protocol):
    """The one verb of auth.Directory that the gate needs."""

    def identify(self, secret: str, now: float) -> Identity: ...


class Gate:
    """Every call to the services of this server goes through it; it lives as long as they do."""

    def __init__(
        self,
        directory: Identifies,
        record: Record,
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
        self._admission = Admission(limits, monotonic)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._closing = Closing()

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

    def _wrap(self, method: str, handler: Handler) -> Handler:
        rule = RULES.get(method)

        def unary(inner: Unary) -> Unary:
            async def call(request: Any, context: Context) -> Any:
                return await self._unary(method, rule, inner, request, context)

            return call

        return wrap(
            handler,
            unary,
            lambda request, context: self._stream(method, rule, request, context),
            self._closing,
        )

    async def _unary(
        self, method: str, rule: Rule | None, inner: Unary, request: Any, context: Context
    ) -> Any:
        began, code, answer = self._monotonic(), "CANCELLED", None
        identity: Identity | None = None
        refusal: status_pb2.Status | None = None
        told = audit.listen()
        handling = self._begun(asyncio.current_task())
        try:
            identity = self._identify(method, rule, context)
            self._admit(method, rule, identity)
            _require_message(request)
            work, finish = inner(request, context), rule is not None and rule.mutates
            answer = await self._limited(self._finished(method, work) if finish else work)
            code = "OK"
        except aio.AbortError:
            code = _code_name(context)
            raise
        except Exception as error:
            code, refusal = errors.code_of(error).name, errors.status_of(error, method)
        finally:
            self._observe(method, code, self._monotonic() - began)
            if identity is not None and _is_recorded(rule, code, request, identity):
                read = None if isinstance(request, Undecodable) else request
                what = "; ".join(told) or ("unreadable" if read is None else audit.what(read))
                await self._keep(self._row(method, identity, read, answer, code, what))
            self._running.discard(handling)
        if refusal is not None:
            await abort(context, refusal)
        return answer

    @asynccontextmanager
    async def _stream(
        self, method: str, rule: Rule | None, request: Any, context: Context
    ) -> AsyncIterator[Admitted]:
        began, code = self._monotonic(), "CANCELLED"
        identity: Identity | None = None
        refusal: status_pb2.Status | None = None
        told = audit.listen()
        handling = self._begun(asyncio.current_task())  # its row of audit is written at its end
        try:
            identity = self._identify(method, rule, context)
            self._admit(method, rule, identity)
            _require_message(request)
            with self._admission.stream(identity.name) if identity else nullcontext():
                yield lambda: self._recheck(method, rule, context, identity)
            code = "OK"
        except aio.AbortError:
            code = _code_name(context)
            raise
        except Exception as error:
            code, refusal = errors.code_of(error).name, errors.status_of(error, method)
        finally:
            self._observe(method, code, self._monotonic() - began)
            if identity is not None and rule is not None and rule.mutates:
                row = self._row(method, identity, None, None, code, "; ".join(told))
                await self._keep(row)
            self._running.discard(handling)
        if refusal is not None:
            await abort(context, refusal)

    def _identify(self, method: str, rule: Rule | None, context: Context) -> Identity | None:
        if rule is None:
            raise Denied(f"{method} has no rule of access, so nobody may call it", reason="NO_RULE")
        if rule.door is not Door.TOKEN:
            return None
        return self._directory.identify(bearer(_authorization(context)), self._clock.now())

    def _recheck(
        self, method: str, rule: Rule | None, context: Context, before: Identity | None
    ) -> None:
        """What a stream shows was chosen by what its caller could do when it began."""
        now = self._identify(method, rule, context)
        if now is not None and before is not None and (less := permissions.lost(before, now)):
            raise Unavailable(f"{now.name} is without {less} now; ask again", reason="RIGHTS_LOST")

    def _admit(self, method: str, rule: Rule | None, identity: Identity | None) -> None:
        if rule is not None and identity is not None:
            call = method.rpartition("/")[2]
            permissions.admit(identity, rule.scope, rule.role, call, rule.right)
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
        """A caller who hangs up must not stop a change half way: it goes on and its result is dropped."""
        task = self._begun(asyncio.create_task(work))
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda task: _drop(method, task))
            raise

    def _begun(self, task: asyncio.Task[Any] | None) -> asyncio.Task[Any]:
        assert task is not None
        self._running.add(task)
        return task

    async def _keep(self, row: AuditRow) -> None:
        """What has happened is answered as it was, also when its row cannot be stored: the log has it then."""
        try:
            await self._record([row])
        except HaiError as error:
            log.error("audit row not stored", why=str(error), **asdict(row))

    def _row(
        self,
        method: str,
        identity: Identity,
        request: Message | None,
        answer: Message | None,
        code: str,
        what: str,
    ) -> AuditRow:
        return AuditRow(
            time=self._clock.now(),
            actor=identity.actor,
            method=method.rpartition("/")[2],
            resource="" if request is None else audit.resource(request, answer),
            what=what,
            code=code,
        )


def _drop(method: str, task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more; what we did not expect still is for the log."""
    if not task.cancelled() and (error := task.exception()) is not None:
        errors.status_of(error, method)


def _is_recorded(rule: Rule | None, code: str, request: Any, identity: Identity) -> bool:
    if rule is None or not rule.mutates:
        return False
    in_timeline = rule.in_timeline and not identity.holder  # a timeline names the user only
    told_elsewhere = in_timeline or getattr(request, "validate_only", False)
    return not (told_elsewhere and code == "OK")


def _require_message(request: Any) -> None:
    if isinstance(request, Undecodable):
        raise unreadable()


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

"""The server's side of Attach: what agents say becomes events of tasks, what they must hear waits in their session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import structlog

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.api.agents.inbox import Inbox
from hai_backend.api.agents.protocols import AgentDeps
from hai_backend.api.agents.rate_limit import RateLimit
from hai_backend.api.agents.reports import AgentReports
from hai_backend.api.agents.welcome import welcome
from hai_backend.api.request import limits
from hai_backend.api.tunnels.agent_tunnel import carry
from hai_backend.auth import tokens
from hai_backend.controllers.cluster.agents import Session
from hai_backend.domain.errors import HaiError, Unauthenticated, Unavailable
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import instructions_on_attach

log = structlog.get_logger(__name__)

_STORE_AWAY_SECONDS = 1.0
_HELLO_SECONDS = 30.0  # before it nobody knows who holds the stream

T = TypeVar("T")


class AgentService(rpc.AgentServiceServicer):
    """Runs one coroutine that reads and one that writes per attached rank."""

    def __init__(self, ports: AgentDeps) -> None:
        self._p = ports
        self._hearing = AgentReports(ports)
        self._pace = RateLimit(limits.AGENT_MESSAGES_PER_SECOND, limits.AGENT_MESSAGES_AT_ONCE)

    async def Attach(
        self,
        request_iterator: AsyncIterator[pb.AttachRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[pb.AttachResponse]:
        hello = await _hello(request_iterator)
        key = RankKey(hello.task_id, hello.run, hello.rank)
        self._check_token(key, context)
        await self._pace.turn(key, limits.AGENT_HELLO_MESSAGES)
        session = Session()
        self._p.hub.attach(key, session)
        reader = asyncio.ensure_future(self._read(key, hello, request_iterator, session))
        try:
            yield await welcome(self._p, key, started=hello.started)
            while (message := await session.next()) is not None:
                yield message
            if session.error is not None:
                raise session.error
        finally:
            reader.cancel()
            self._p.hub.detach(key, session)

    async def Carry(
        self,
        request_iterator: AsyncIterator[pb.CarryRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[pb.CarryResponse]:
        hello = await _carry_hello(request_iterator)
        key = RankKey(hello.task_id, hello.run, hello.rank)
        self._check_token(key, context)
        tunnel = self._p.tunnels.accept(key, hello.tunnel)
        async for message in carry(hello, tunnel, request_iterator):
            yield message

    def _check_token(self, key: RankKey, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        sent = dict(context.invocation_metadata() or ()).get("authorization")
        secret = tokens.bearer(str(sent) if sent else None)
        if not tokens.is_run_token(self._p.secret, key.task_id, key.run, key.rank, secret):
            raise Unauthenticated(f"the run token is not that of rank {key}")

    async def _read(
        self,
        key: RankKey,
        hello: pb.AgentHello,
        requests: AsyncIterator[pb.AttachRequest],
        session: Session,
    ) -> None:
        """Take the agent's messages until it goes or breaks a rule; then the writer ends too."""
        inbox = Inbox()
        receiving = asyncio.ensure_future(self._receive(key, requests, session, inbox))
        try:
            await self._greet(key, hello)
            while (received := await inbox.next()) is not None:
                await self._hearing.take(key, received, session)
        except HaiError as error:
            log.warning("an agent was cut off", rank=str(key), why=str(error))
            session.error = error
            if isinstance(error, Unavailable):  # it comes back with the same message at once
                inbox.close()
                await asyncio.sleep(_STORE_AWAY_SECONDS)  # its heartbeats are answered meanwhile
        except Exception as error:
            session.error = error  # the gate makes an incident of it
        finally:
            receiving.cancel()
            session.close()

    async def _receive(
        self,
        key: RankKey,
        requests: AsyncIterator[pb.AttachRequest],
        session: Session,
        inbox: Inbox,
    ) -> None:
        """Read the stream, also while something that the agent sent before waits for the store."""
        try:
            await self._p.current(key)
            slowed = False
            async for request in requests:
                await self._hearing.receive(key, request, session, inbox)
                if await self._pace.turn(key) and not slowed:
                    slowed = True
                    log.warning("an agent says too much: it is heard more slowly", rank=str(key))
        except Exception as error:
            inbox.close(error)
        finally:
            inbox.close()

    async def _greet(self, key: RankKey, hello: pb.AgentHello) -> None:
        task = await self._p.current(key)
        for instruction in instructions_on_attach(task, key.rank, started=hello.started):
            self._p.executor.perform(task, instruction)
        attached = ev.RankAttached(
            key.run, key.rank, hello.address[: limits.NAME_CHARS], hello.free_port
        )
        self._p.heard(key)
        await self._p.task_manager.apply(key.task_id, attached)


async def _carry_hello(requests: AsyncIterator[pb.CarryRequest]) -> pb.CarryHello:
    first = None
    with suppress(TimeoutError):
        first = await _first(requests)
    if first is None or first.WhichOneof("message") != "hello":
        raise Unauthenticated("the first message of a tunnel's stream must be hello")
    return first.hello


async def _hello(requests: AsyncIterator[pb.AttachRequest]) -> pb.AgentHello:
    """Who speaks. Raises Unauthenticated; Unavailable, after which agents try again, when nobody does for long."""
    try:
        first = await _first(requests)
    except TimeoutError:
        raise Unavailable(f"no hello within {_HELLO_SECONDS:g} s; attach again") from None
    if first is None or first.WhichOneof("message") != "hello":
        raise Unauthenticated("the first message of an agent must be hello")
    return first.hello


async def _first(requests: AsyncIterator[T]) -> T | None:
    async with asyncio.timeout(_HELLO_SECONDS):
        return await anext(requests, None)

"""AgentService: the streams of agents. Each Attach stream has a coroutine that reads and one that writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import structlog

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.api.agents.flow_control import Inbox, RateLimit
from hai_backend.api.agents.reports import AgentReports
from hai_backend.api.agents.service_deps import AgentDeps
from hai_backend.api.agents.welcome import make_welcome
from hai_backend.api.request import limits
from hai_backend.api.tunnels.agent_tunnel import carry
from hai_backend.auth import tokens
from hai_backend.controllers.cluster.agents import Session
from hai_backend.domain.errors import HaiError, Unauthenticated, Unavailable
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import instructions_on_attach

log = structlog.get_logger(__name__)

_STORE_UNAVAILABLE_SECONDS = 1.0
_HELLO_SECONDS = 30.0  # a stream is anonymous until its hello

T = TypeVar("T")


class AgentService(rpc.AgentServiceServicer):
    """See proto/hai/v1/agent_service.proto for what each call means."""

    def __init__(self, deps: AgentDeps) -> None:
        self._deps = deps
        self._reports = AgentReports(deps)
        self._rate_limit = RateLimit(
            limits.AGENT_MESSAGES_PER_SECOND, limits.AGENT_MESSAGES_AT_ONCE
        )

    async def Attach(
        self,
        request_iterator: AsyncIterator[pb.AttachRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[pb.AttachResponse]:
        hello = await _hello(request_iterator)
        key = RankKey(hello.task_id, hello.run, hello.rank)
        self._check_token(key, context)
        await self._rate_limit.wait_turn(key, limits.AGENT_HELLO_MESSAGES)
        session = Session()
        self._deps.connected_agents.attach(key, session)
        reader = asyncio.ensure_future(self._read(key, hello, request_iterator, session))
        try:
            yield await make_welcome(self._deps, key, started=hello.started)
            while (message := await session.next()) is not None:
                yield message
            if session.error is not None:
                raise session.error
        finally:
            reader.cancel()
            self._deps.connected_agents.detach(key, session)

    async def Carry(
        self,
        request_iterator: AsyncIterator[pb.CarryRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[pb.CarryResponse]:
        hello = await _carry_hello(request_iterator)
        key = RankKey(hello.task_id, hello.run, hello.rank)
        self._check_token(key, context)
        tunnel = self._deps.tunnels.accept(key, hello.tunnel)
        async for message in carry(hello, tunnel, request_iterator):
            yield message

    def _check_token(self, key: RankKey, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        header = dict(context.invocation_metadata() or ()).get("authorization")
        secret = tokens.parse_bearer(str(header) if header else None)
        if not tokens.is_run_token(self._deps.secret, key.task_id, key.run, key.rank, secret):
            raise Unauthenticated(f"the run token is not that of rank {key}")

    async def _read(
        self,
        key: RankKey,
        hello: pb.AgentHello,
        requests: AsyncIterator[pb.AttachRequest],
        session: Session,
    ) -> None:
        """Handle the messages of the agent until the stream ends or a message is refused. Then end the writer, too."""
        inbox = Inbox()
        receiving = asyncio.ensure_future(self._receive(key, requests, session, inbox))
        try:
            await self._greet(key, hello)
            while (received := await inbox.next()) is not None:
                await self._reports.handle(key, received, session)
        except HaiError as error:
            log.warning("stream of an agent ended", rank=str(key), why=str(error))
            session.error = error
            if isinstance(error, Unavailable):
                inbox.close()
                # The agent attaches again at once with the same message. Until then heartbeats are answered
                await asyncio.sleep(_STORE_UNAVAILABLE_SECONDS)
        except Exception as error:
            session.error = error  # CallGuard logs it as an internal error
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
        """Read the stream into the inbox, also while an earlier message waits for the store."""
        try:
            await self._deps.get_task(key)
            has_warned = False
            async for request in requests:
                await self._reports.receive(key, request, session, inbox)
                if await self._rate_limit.wait_turn(key) and not has_warned:
                    has_warned = True
                    log.warning("agent sends too many messages; reading them slowly", rank=str(key))
        except Exception as error:
            inbox.close(error)
        finally:
            inbox.close()

    async def _greet(self, key: RankKey, hello: pb.AgentHello) -> None:
        task = await self._deps.get_task(key)
        for instruction in instructions_on_attach(task, key.rank, started=hello.started):
            self._deps.executor.perform(task, instruction)
        attached = ev.RankAttached(
            key.run, key.rank, hello.address[: limits.NAME_CHARS], hello.free_port
        )
        self._deps.message_received(key)
        await self._deps.task_manager.apply(key.task_id, attached)


async def _carry_hello(requests: AsyncIterator[pb.CarryRequest]) -> pb.CarryHello:
    first = None
    with suppress(TimeoutError):
        first = await _first(requests)
    if first is None or first.WhichOneof("message") != "hello":
        raise Unauthenticated("the first message of a tunnel's stream must be hello")
    return first.hello


async def _hello(requests: AsyncIterator[pb.AttachRequest]) -> pb.AgentHello:
    """Return the first message. Raises Unauthenticated, or Unavailable after a timeout, so that the agent retries."""
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

"""Reads the logs of tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.streams import OnLost, resume_stream
from hai.client.connection.transport import Transport
from hai.client.resources.requests import timestamp
from hai.v1.log_service_pb2 import TailLogsRequest, TailLogsResponse
from hai.v1.log_service_pb2_grpc import LogServiceStub

if TYPE_CHECKING:
    from hai.v1.log_service_pb2_grpc import LogServiceAsyncStub


class Logs:
    """Calls about the log lines of ranks, over all runs of a task."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> LogServiceAsyncStub:
        return self._transport.stub(LogServiceStub)

    def tail(
        self,
        id: int,
        *,
        ranks: Iterable[int] = (),
        run: int = 0,
        tail_lines: int = 0,
        since: datetime | None = None,
        follow: bool = False,
        cursor: str = "",
        patience: float | None = None,
        lost: OnLost | None = None,
    ) -> AsyncGenerator[TailLogsResponse, None]:
        """Yield lines after a cursor. A restart of the server neither loses nor repeats a line.

        Raises Unreachable after `patience` seconds without a server. The default is no limit with `follow`, and no
        waiting without it. `lost` is called when the server does not answer.
        """
        request_template = TailLogsRequest(
            id=id,
            ranks=ranks,
            run=run,
            tail_lines=tail_lines,
            since=timestamp(since),
            follow=follow,
        )

        def reopen(last: str) -> AsyncGenerator[TailLogsResponse, None]:
            request = TailLogsRequest(cursor=last)
            request.MergeFrom(request_template)
            return self._transport.stream(self._stub.TailLogs, request)

        limit = patience if follow or patience is not None else 0.0
        return resume_stream(reopen, cursor, lambda r: r.cursor, patience=limit, on_lost=lost)

    async def page(
        self,
        id: int,
        cursor: str = "",
        *,
        ranks: Iterable[int] = (),
        run: int = 0,
        back: bool = True,
    ) -> TailLogsResponse:
        """Return the lines immediately before a cursor, or with `back` False those after it.

        Without a cursor these are the last lines. `begin` and `cursor` of the answer are its two ends. `begin` is
        empty if there are no earlier lines.
        """
        request = TailLogsRequest(id=id, ranks=ranks, run=run, cursor=cursor, back=back)
        async with aclosing(self._transport.stream(self._stub.TailLogs, request)) as answers:
            async for answer in answers:
                return answer
        return TailLogsResponse(cursor=cursor)

"""Log lines of a task: live over a websocket, or once as a download."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from tornado.web import HTTPError, authenticated

from hai.client.errors import HaiError
from hai.v1.log_service_pb2 import LogLine
from hai_jupyter import errors
from hai_jupyter.handlers.base import Handler, parse_number
from hai_jupyter.handlers.live import ALIVE_SECONDS, Socket
from hai_jupyter.live.log_streams import with_pauses
from hai_jupyter.live.rows import seconds

_MAX_NUMBER = 2**31 - 1


class LogSocket(Socket):
    """Lines from a cursor on, until the task is finished. Each frame has the cursor from which to resume."""

    async def feed(self, *arguments: str) -> None:
        """Open one stream of the platform for this viewer; it waits for the page, so no lines pile up."""
        try:
            with self.shared.logs.reserve():
                await self._tail(int(arguments[0]))
        except HaiError as error:
            await self.write_message(json.dumps({"error": errors.body(error)}))

    async def _tail(self, id: int) -> None:
        cursor = self.get_query_argument("cursor", "")
        lines = self.shared.client_provider.client().logs.tail(
            id,
            ranks=_ranks(self.get_query_argument("ranks", "")),
            tail_lines=0
            if cursor
            else parse_number(self.get_query_argument("tail", "0"), _MAX_NUMBER),
            follow=True,
            cursor=cursor,
            patience=0,
        )
        async with aclosing(with_pauses(lines, ALIVE_SECONDS)) as answers:
            async for answer in answers:
                await self.write_message(
                    _frame(answer.lines, answer.cursor) if answer else '{"lines":[]}'
                )
        await self.write_message('{"lines":[],"end":true}')


class LogFileHandler(Handler):
    """The whole log as a text file."""

    @authenticated
    async def get(self, id: str) -> None:
        """Write the log as it is read, so that a long log is never held in memory. A download that breaks off must not
        look
        complete.
        """
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="task-{int(id)}.log"')
        self.set_header("X-Content-Type-Options", "nosniff")
        ranks, has_begun = _ranks(self.get_query_argument("ranks", "")), False
        try:
            async with aclosing(self.client.logs.tail(int(id), ranks=ranks)) as answers:
                async for answer in answers:
                    self.write("".join(_plain(line) for line in answer.lines))
                    await self.flush()
                    has_begun = True
        except HaiError as error:
            if has_begun:
                self.log.warning("a download of the log of task %s broke off: %s", id, error)
                return self.detach().close()
            raise HTTPError(errors.status(error), error.message) from error
        self.finish()


def _frame(lines: Iterable[LogLine], cursor: str) -> str:
    rows = [[x.run, x.rank, seconds(x.time), x.text, int(x.redraw)] for x in lines]
    frame: dict[str, Any] = {"lines": rows, "cursor": cursor}
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def _plain(line: LogLine) -> str:
    return f"[{line.run}.{line.rank}] {line.time.ToJsonString()} {line.text}\n"


def _ranks(text: str) -> list[int]:
    return [n for word in text.split(",") if (n := parse_number(word, _MAX_NUMBER)) or word == "0"]

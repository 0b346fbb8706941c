"""What the page shows, live: over a websocket, or by asking again where proxies let none through."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from hai_jupyter.handlers.base import RESOURCE, Handler, answers, number
from hai_jupyter.shared_state import Backend

POLL_SECONDS = 20.0
ALIVE_SECONDS = 15.0  # less than CHECK_SECONDS of quiet.ts


class Socket(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """A websocket that runs `feed` while it is open, and ends it when it is closed."""

    auth_resource = RESOURCE
    _feeding: asyncio.Task[None] | None = None

    @property
    def backend(self) -> Backend:
        """What all handlers share."""
        found: Backend = self.settings["hai_jupyter_backend"]
        return found

    @ws_authenticated
    async def get(self, *arguments: str, **named: str) -> None:
        """Let only the user of this Jupyter server in."""
        await super().get(*arguments, **named)

    def open(self, *arguments: str) -> None:
        """Begin."""
        super().open(*arguments)
        self._feeding = asyncio.ensure_future(self._feed(*arguments))

    def on_message(self, message: str | bytes) -> None:
        """Pages say nothing; what they want stands in the URL."""

    def on_close(self) -> None:
        """End."""
        if self._feeding is not None:
            self._feeding.cancel()
        super().on_close()

    async def feed(self, *arguments: str) -> None:
        """Write until cancelled."""
        raise NotImplementedError

    async def _feed(self, *arguments: str) -> None:
        try:
            await self.feed(*arguments)
        except WebSocketClosedError:
            return
        except Exception:
            self.log.exception("a page was told no more")
        finally:  # however it ended: a page whose socket is closed opens another one
            self.close()


class EventsSocket(Socket):
    """Tasks, nodes, and whether the platform answers."""

    async def feed(self, *arguments: str) -> None:
        """Each frame once the page has taken the one before: changes in between are folded."""
        board, after = _position(self)
        with self.backend.stream_manager.page(board, after) as page:
            while True:
                await self.write_message(await page.next_within(ALIVE_SECONDS))


class StateHandler(Handler):
    """The same, one frame an answer; waits until there is one."""

    @answers
    async def get(self) -> Any:
        """A frame; an empty one when nothing has changed for a while."""
        board, after = _position(self)
        with self.backend.stream_manager.page(board, after) as page:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    return await page.next()
            except TimeoutError:
                return {"tasks": [], "nodes": [], "version": after}


def _position(handler: JupyterHandler) -> tuple[str, int]:
    after = number(handler.get_query_argument("after", "0"))
    return handler.get_query_argument("board", ""), after

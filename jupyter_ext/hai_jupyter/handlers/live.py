"""Live state for the page: over a websocket, or by repeated requests where proxies let no websocket through."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from hai_jupyter.handlers.base import (
    RESOURCE,
    Handler,
    SharedState,
    answers,
    parse_number,
    shared_state,
)

POLL_SECONDS = 20.0
ALIVE_SECONDS = 15.0  # less than CHECK_SECONDS of heartbeat.ts


class Socket(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """A websocket that runs `feed` while it is open."""

    auth_resource = RESOURCE
    _feed_task: asyncio.Task[None] | None = None

    @property
    def shared(self) -> SharedState:
        """Return the objects that all handlers share."""
        return shared_state(self)

    @ws_authenticated
    async def get(self, *arguments: str, **named: str) -> None:
        """Admit only the user of this Jupyter server."""
        await super().get(*arguments, **named)

    def open(self, *arguments: str) -> None:
        super().open(*arguments)
        self._feed_task = asyncio.ensure_future(self._feed_and_close(*arguments))

    def on_message(self, message: str | bytes) -> None:
        """Ignore messages, because a page puts its whole request into the URL."""

    def on_close(self) -> None:
        if self._feed_task is not None:
            self._feed_task.cancel()
        super().on_close()

    async def feed(self, *arguments: str) -> None:
        """Write frames until cancelled."""
        raise NotImplementedError

    async def _feed_and_close(self, *arguments: str) -> None:
        try:
            await self.feed(*arguments)
        except WebSocketClosedError:
            return
        except Exception:
            self.log.exception("the live updates of a page have ended")
        finally:  # a page opens a new socket after its socket closes
            self.close()


class EventsSocket(Socket):
    """Changes of tasks, nodes and the connection to the platform."""

    async def feed(self, *arguments: str) -> None:
        """Write each frame after the page has taken the one before; changes in between are merged."""
        store_id, after = _position(self)
        with self.shared.stream_manager.page(store_id, after) as page:
            while True:
                await self.write_message(await page.next_within(ALIVE_SECONDS))


class StateHandler(Handler):
    """The same changes, one frame for each request."""

    @answers
    async def get(self) -> Any:
        """Return the next frame; an empty one if nothing changes for a while."""
        store_id, after = _position(self)
        with self.shared.stream_manager.page(store_id, after) as page:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    return await page.next()
            except TimeoutError:
                return {"tasks": [], "nodes": [], "version": after}


def _position(handler: JupyterHandler) -> tuple[str, int]:
    """Return the store and its version up to which the page has all changes."""
    after = parse_number(handler.get_query_argument("after", "0"))
    return handler.get_query_argument("board", ""), after

"""What every handler does: let only the user of this Jupyter server in, and answer failures as JSON."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado.web import authenticated

from hai.client.client import Client
from hai.client.errors import HaiError, explain_error
from hai_jupyter import errors
from hai_jupyter.shared_state import Backend

RESOURCE = "hai_jupyter"
_DIGITS = re.compile(r"[0-9]{1,19}")

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])


class Handler(APIHandler):
    """Reaches the platform through the one client of this server."""

    auth_resource = RESOURCE

    @property
    def backend(self) -> Backend:
        """What all handlers share."""
        found: Backend = self.settings["hai_jupyter_backend"]
        return found

    @property
    def client(self) -> Client:
        """The way to the platform."""
        return self.backend.client_provider.client()

    def body(self) -> dict[str, Any]:
        """The request's JSON object."""
        try:
            data = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise errors.invalid(("", f"the request is not JSON: {error}")) from error
        if not isinstance(data, dict):
            raise errors.invalid(("", "the request must be a JSON object"))
        return data


def number(text: str, most: int = 2**63 - 1) -> int:
    """A number of a URL; 0 for what is none, or too large."""
    found = int(text) if _DIGITS.fullmatch(text) else 0
    return found if found <= most else 0


def answers(method: Method) -> Callable[..., Awaitable[None]]:
    """Send what the method returns as JSON, and what it raises as an error that the page understands."""

    @authenticated
    @authorized
    @functools.wraps(method)
    async def handle(self: Handler, *arguments: str) -> None:
        try:
            result = await method(self, *arguments)
        except Exception as error:
            known = explain_error(error)
            if not isinstance(known, HaiError):
                raise
            self.set_status(errors.status(known))
            result = errors.body(known)
        self.finish(result if isinstance(result, str) else json.dumps(result))

    return cast(Callable[..., Awaitable[None]], handle)

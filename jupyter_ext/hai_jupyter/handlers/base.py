"""The base of all handlers: admits only the user of this Jupyter server, and answers failures as JSON."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.web import authenticated

from hai.client.client import Client
from hai.client.errors import HaiError, explain_error
from hai_jupyter import errors
from hai_jupyter.client_provider import ClientProvider
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.live.log_streams import LogStreams
from hai_jupyter.live.stream_manager import StreamManager
from hai_jupyter.live.usage_cache import UsageCache

RESOURCE = "hai_jupyter"
SETTINGS_KEY = "hai_jupyter_state"
_DIGITS = re.compile(r"[0-9]{1,19}")

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class SharedState:
    """The objects that all handlers of a server share."""

    client_provider: ClientProvider
    stream_manager: StreamManager
    logs: LogStreams
    contents_paths: ContentsPaths
    environments: Path  # the directory of haienv
    manual: str = ""  # a URL
    usage_cache: UsageCache = field(default_factory=UsageCache)


def shared_state(handler: JupyterHandler) -> SharedState:
    """Return the objects that all handlers share."""
    return cast(SharedState, handler.settings[SETTINGS_KEY])


class Handler(APIHandler):
    """A handler that reaches the platform through the client of this server."""

    auth_resource = RESOURCE

    @property
    def shared(self) -> SharedState:
        """Return the objects that all handlers share."""
        return shared_state(self)

    @property
    def client(self) -> Client:
        """Return the client of the platform."""
        return self.shared.client_provider.client()

    def body(self) -> dict[str, Any]:
        """Return the JSON object of the request."""
        try:
            data = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise errors.invalid(("", f"the request is not JSON: {error}")) from error
        if not isinstance(data, dict):
            raise errors.invalid(("", "the request must be a JSON object"))
        return data


def parse_number(text: str, max_value: int = 2**63 - 1) -> int:
    """Return a number of a URL; 0 if the text is not a number or the number is too large."""
    value = int(text) if _DIGITS.fullmatch(text) else 0
    return value if value <= max_value else 0


def to_json_value(message: Message, *, whole: bool = False) -> dict[str, Any]:
    """Return a message with the field names of the contract; `whole` includes fields with default values."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=whole
    )


def answers(method: Method) -> Callable[..., Awaitable[None]]:
    """Send the result of the method as JSON, and its exception as an error of the page's format."""

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

"""Settings of one invocation of `hai`, and the call to the server that they choose."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from hai.client.client import Client

Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")
Connect = Callable[[str | None], AbstractAsyncContextManager["Client"]]

FORMATS = ("table", "wide", "json", "yaml", "name")


@dataclass(slots=True)
class Settings:
    """The common options. The parser of the command line fills them in; commands only read them."""

    connect: Connect
    clock: Callable[[], float]
    profile: str | None = None
    output: str = "table"
    headers: bool = True
    columns: tuple[str, ...] = ()
    quiet: bool = False
    color: bool = True
    debug: bool = False

    @property
    def json(self) -> bool:
        """True if the output is JSON."""
        return self.output == "json"

    @property
    def structured(self) -> bool:
        """True if the output is JSON or YAML."""
        return self.output in ("json", "yaml")

    @property
    def names_only(self) -> bool:
        """True if the output is identifiers, one per line. JSON and YAML win over --quiet."""
        return not self.structured and (self.output == "name" or self.quiet)

    @property
    def sentences(self) -> bool:
        """True if a command prints a sentence for each result, and not a list of all results at the end."""
        return self.output in ("table", "wide") and not self.quiet

    @property
    def decorated(self) -> bool:
        """True if stdout is a terminal that understands control sequences."""
        return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def colored(self) -> bool:
        """True if colours may be printed."""
        return self.decorated and self.color and not os.environ.get("NO_COLOR")


def connect(profile: str | None) -> AbstractAsyncContextManager[Client]:
    """Return a client for the profile of that name. Without a name, the environment or the profile file chooses."""
    from hai.client.client import Client
    from hai.client.profile import load

    return Client(load(profile))


def call_server(settings: Settings, work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Connect, do the work, disconnect. Loads asyncio and grpc only here, so that other commands start faster."""
    import asyncio

    async def session() -> Answer:
        async with settings.connect(settings.profile) as client:
            return await work(client)

    return asyncio.run(session())


def with_client(
    function: Callable[Concatenate[Settings, Client, Parameters], Awaitable[Answer]],
) -> Callable[Parameters, Answer]:
    """Turn an async function into a callback of click. It receives the settings and a connected client first."""

    @click.pass_obj
    @wraps(function)
    def run(settings: Settings, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        return call_server(settings, lambda client: function(settings, client, *args, **kwargs))

    return run

"""Asks the cluster's server, through `hai.client`; above all who uses what would be deleted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from haienv.errors import EnvError, Refused
from haienv.layout import Home
from haienv.registry import Environment

if TYPE_CHECKING:
    from hai.client.client import Client

Answer = TypeVar("Answer")


class ServerSays(EnvError):
    """An error of the server or of the way to it, with its own code and reason."""

    def __init__(self, code: int, reason: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.code = code
        self.reason = reason


def ask(work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Connect to the server of the current profile, do the work, disconnect."""
    from hai.client import errors
    from hai.client.client import Client
    from hai.client.profile import load

    codes = ((errors.NotFound, 3), (errors.Denied, 4), (errors.Unauthenticated, 4), (errors.Invalid, 2),
             (errors.UsageError, 2), (errors.Unreachable, 5), (errors.TimedOut, 124))  # fmt: skip

    async def session() -> Answer:
        async with Client(load()) as client:
            return await work(client)

    try:
        return asyncio.run(session())
    except errors.HaiError as error:
        code = next((code for kind, code in codes if isinstance(error, kind)), 1)
        raise ServerSays(code, error.reason, error.message, error.hint) from error


def used_by(environment: Environment) -> list[int]:
    """Unfinished tasks that use an environment; none where no server is known, or it has other files."""

    async def work(client: Client) -> list[int]:
        found = await client.environments.get(environment.name, environment.owner)
        return list(found.used_by)

    return _told_of(environment.root, work, [])


def require_unused(environment: Environment) -> None:
    """Raises Refused where unfinished tasks name an environment: they could not start again."""
    if tasks := used_by(environment):
        raise Refused(
            f"{environment} is used by unfinished tasks: {', '.join(map(str, tasks))}",
            "wait for them, stop them, or --force",
        )


def layers_in_use(home: Home) -> frozenset[str]:
    """The caller's layers that programs of tasks run in, or that hidden environments of others stand on."""

    async def work(client: Client) -> frozenset[str]:
        return frozenset(await client.environments.layers_in_use())

    return _told_of(home.root, work, frozenset())


def _told_of(root: Path, work: Callable[[Client], Awaitable[Answer]], nothing: Answer) -> Answer:
    """What the server says of these files; `nothing` where no server is known, or it has others."""
    from hai.client import errors
    from hai.client.profile import load

    try:
        load()
    except errors.HaiError:
        return nothing

    async def session(client: Client) -> Answer:
        return await work(client) if await client.environments.root() == str(root) else nothing

    try:
        return ask(session)
    except ServerSays as error:
        alone = error.code == 5 and "HAIENV_HOME" not in os.environ  # a root of this account only
        if error.code == 3 or alone:
            return nothing
        if error.code == 5:
            error.hint = "what tasks use is not known; --force goes on all the same"
        raise

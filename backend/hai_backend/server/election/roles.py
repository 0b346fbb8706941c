"""The roles of a server, and the election of a server that does not share its store and always leads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Leading:
    """This server leads. The epoch is None if no other server uses the store."""

    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Following:
    """The server at this address leads. The address is empty if there is no known leader."""

    address: str = ""


Role = Leading | Following


class Election(Protocol):
    """Determines the role of a server."""

    role: Role

    async def run(self) -> None:
        """Take part in the election until cancelled. A leader that is cancelled resigns."""

    async def wait_for_change(self, role: Role) -> Role:
        """Return as soon as the role differs from `role`."""

    def is_certain(self) -> bool:
        """Return whether this server can be sure that it still leads. It cannot after a long pause."""


class SingleServer:
    """The election of a server that does not share its store. It always leads."""

    role: Role = Leading()

    async def run(self) -> None:
        """Wait until cancelled, because the role never changes."""
        await asyncio.Event().wait()

    async def wait_for_change(self, role: Role) -> Role:
        """Wait until cancelled, because the role never changes."""
        await asyncio.Event().wait()
        return role

    def is_certain(self) -> bool:
        return True

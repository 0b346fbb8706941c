"""The roles of a server, and the election of one that has its store for itself: it always leads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Leading:
    """This server leads. No epoch: the store is its own, nobody else may lead."""

    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Following:
    """The server at this address leads; empty: none does, or nobody knows."""

    address: str = ""


Role = Leading | Following


class Election(Protocol):
    """What a server must know to play its role."""

    role: Role

    async def run(self) -> None:
        """For ever; resigns when it is cancelled."""

    async def changed(self, role: Role) -> Role:
        """Return as soon as the role is another one."""

    def fresh(self) -> bool:
        """False when this server leads no more, or was asleep so long that it cannot know."""


class Alone:
    """The election of a server that has its store for itself."""

    role: Role = Leading()

    async def run(self) -> None:
        """Nothing ever changes."""
        await asyncio.Event().wait()

    async def changed(self, role: Role) -> Role:
        """Never."""
        await asyncio.Event().wait()
        return role

    def fresh(self) -> bool:
        """Always."""
        return True

"""Requests to an API server: bytes out, bytes in. The real one is official_client.py; tests have one without
sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `form` is the content type of a body."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    form: str = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered, whatever it was."""

    code: int
    body: bytes
    retry_after: str = ""


class Transport(Protocol):
    """Where an API server is, and who we are for it."""

    async def ask(self, call: Call, seconds: float) -> Answer:
        """One answer. Raises Unavailable when there was none."""

    def lines(self, call: Call) -> AsyncGenerator[bytes, None]:
        """A stream, line by line. Raises Unavailable when it breaks, ApiError or Expired when it is refused."""

    async def close(self) -> None:
        """Give connections back."""

"""The connection of this Jupyter server to the platform.

It is opened on first use, in the running loop, so never before a fork. `hai up` may give a server a new address and a
new token, so the profile is read again at each use, and a changed profile gets a new client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hai.client.client import Client
from hai.client.profile import Profile


class ClientProvider:
    """Provides the client. Answers to pages never contain a part of the profile, so the token stays here."""

    def __init__(
        self,
        profile: Callable[[], Profile],
        connect: Callable[[Profile], Client] = Client,
    ) -> None:
        self._profile = profile
        self._connect = connect
        self._client: Client | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def profile(self) -> Profile:
        """Return the current profile. Raises UsageError if there is none."""
        return self._profile()

    def client(self) -> Client:
        """Return the client for the current profile. Raises UsageError if there is none."""
        profile = self.profile()
        if self._client is None or self._client.profile != profile:
            self._drop()
            self._client = self._connect(profile)
        return self._client

    async def close(self) -> None:
        """Close the connection."""
        self._drop()
        await asyncio.gather(*self._closing)

    def _drop(self) -> None:
        if self._client is not None:
            task = asyncio.ensure_future(self._client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            self._client = None

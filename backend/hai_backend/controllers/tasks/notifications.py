"""Tells webhooks what becomes of tasks. A notice is written with the change it tells of, and deleted when it is told.

So none is lost, whatever dies, and one may be told twice: its id says so. What cannot be told is tried again for a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import structlog

from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.aio.retry import insisted
from hai_backend.controllers.tasks.webhooks import Webhooks
from hai_backend.domain.accounts.webhook import Format, Notice, Webhook, is_allowed, origin_of
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.task import Task
from hai_backend.lifecycle.notifications import notices
from hai_backend.store.base import Store
from hai_backend.webhooks.bodies import Letter, letter

log = structlog.get_logger(__name__)

GATHERING = 1.0  # seconds: what ends together is told together
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
KEPT_SECONDS = 24 * 3600.0
TOGETHER = 50  # notices in one request
MANY = 10_000  # that wait for one webhook; what comes then is not kept
Key = tuple[str, str]  # owner and name
Post = Callable[[Letter, Format], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Told:
    """How the last try went; `error` is empty when it was taken."""

    time: float
    error: str


@dataclass(frozen=True, slots=True)
class Terms:
    """To whom the operators let the server speak, and as which cluster."""

    cluster: str
    origins: Collection[str]


class Notifications:
    """One request at a time for each webhook. `counted` is told of each: taken, failed, dropped."""

    def __init__(
        self,
        store: Store,
        webhooks: Webhooks,
        clock: Clock,
        post: Post,
        terms: Terms,
        begin: Callable[[Coroutine[Any, Any, None]], object],
        counted: Callable[[str], None] = lambda result: None,
    ) -> None:
        self._store = store
        self._webhooks = webhooks
        self._clock = clock
        self._post = post
        self._terms = terms
        self._begin = begin
        self._counted = counted
        self._rung: set[Key] = set()
        self._busy: set[Key] = set()
        self._full: set[Key] = set()
        self._changed: dict[Key, asyncio.Event] = {}  # of webhooks that are tried again
        self.told: dict[Key, Told] = {}

    async def load(self) -> None:
        """What another server had still to tell."""
        for notice in await self._store.records(Notice):
            self._ring(_key(notice))

    def noticed(self, before: Task, task: Task) -> Sequence[Notice]:
        """What is to be written with this change."""
        webhooks = self._webhooks.of(task.user)
        if not webhooks:
            return ()
        found = notices(webhooks, before, task, self._clock.now())
        return [notice for notice in found if _key(notice) not in self._full]

    def changed(self, before: Task | None, task: Task) -> None:
        """It is written."""
        if before is not None:
            for notice in self.noticed(before, task):
                self._ring(_key(notice))

    def renewed(self, webhook: Webhook) -> None:
        """It has changed: what it did not take is tried again now."""
        key = (webhook.owner_name, webhook.name)
        if key in self._changed:
            self._changed[key].set()

    async def test(self, webhook: Webhook, notice: Notice) -> Told:
        """Tell it this now, once."""
        return await self._try(webhook, [notice])

    def _ring(self, key: Key) -> None:
        self._rung.add(key)
        if key not in self._busy:
            self._busy.add(key)
            self._begin(self._deliver(key))

    async def _deliver(self, key: Key) -> None:
        try:
            while key in self._rung:
                await asyncio.sleep(GATHERING)
                self._rung.discard(key)
                await insisted(partial(self._empty, key), "a notice")
        finally:
            self._busy.discard(key)

    async def _empty(self, key: Key) -> None:
        pause = FIRST_PAUSE
        while waiting := await self._waiting(key):
            webhook, now = self._webhooks.get(*key), self._clock.now()
            late = [each for each in waiting if webhook is None or now - each.time > KEPT_SECONDS]
            if late:
                await self._drop(late)
            elif webhook is not None and (await self._try(webhook, waiting)).error:
                pause = await self._rest(key, pause)
            else:
                await self._forget(waiting)
                pause = FIRST_PAUSE

    async def _waiting(self, key: Key) -> list[Notice]:
        """The oldest ones."""
        owner, name = key
        found = await self._store.records(Notice, owner_name=owner, webhook=name)
        (self._full.add if len(found) >= MANY else self._full.discard)(key)
        return sorted(found, key=attrgetter("time", "task_id", "run"))[:TOGETHER]

    async def _try(self, webhook: Webhook, some: Sequence[Notice]) -> Told:
        now = self._clock.now()
        try:
            if not is_allowed(webhook.url, self._terms.origins):
                raise Unavailable(f"operators do not allow {origin_of(webhook.url)} any more")
            await self._post(letter(webhook, self._terms.cluster, some, now), webhook.format)
        except Unavailable as error:
            told = Told(now, str(error))
        else:
            told = Told(now, "")
        self._counted("failed" if told.error else "taken")
        self.told[webhook.owner_name, webhook.name] = told
        return told

    async def _rest(self, key: Key, pause: float) -> float:
        """The pause after this one; it ends early when the webhook changes."""
        self._changed[key] = changed = asyncio.Event()
        try:
            async with asyncio.timeout(pause):
                await changed.wait()
            return FIRST_PAUSE
        except TimeoutError:
            return min(2 * pause, LONGEST_PAUSE)
        finally:
            del self._changed[key]

    async def _drop(self, late: Sequence[Notice]) -> None:
        one = late[0]
        log.warning(
            "notices are dropped: their webhook is gone, or has taken none for a day",
            user=one.owner_name,
            webhook=one.webhook,
            notices=len(late),
        )
        self._counted("dropped")
        await self._forget(late)

    async def _forget(self, some: Sequence[Notice]) -> None:
        await asyncio.gather(*(self._store.delete_record(each) for each in some))


def _key(notice: Notice) -> Key:
    return (notice.owner_name, notice.webhook)

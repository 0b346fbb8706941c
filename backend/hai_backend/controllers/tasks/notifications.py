"""Sends notices about tasks to webhooks.

A notice is stored in the same transaction as the change that it reports, and deleted after its delivery. No notice is
therefore lost in a crash, but a notice may be delivered twice with the same id. Failed deliveries are retried for 24
hours.
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
from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.tasks.webhooks import Webhooks
from hai_backend.domain.accounts.webhook import Format, Notice, Webhook, is_allowed, origin_of
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.task import Task
from hai_backend.lifecycle.notifications import make_notices
from hai_backend.store.base import Store
from hai_backend.webhooks.payload import WebhookRequest, build_request

log = structlog.get_logger(__name__)

BATCH_SECONDS = 1.0  # notices within this time are sent together
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
RETENTION_SECONDS = 24 * 3600.0
BATCH_SIZE = 50  # notices in one request
MAX_PENDING = 10_000  # per webhook; further notices are dropped
Key = tuple[str, str]  # owner and name
Post = Callable[[WebhookRequest, Format], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of the last delivery. `error` is empty if the webhook accepted it."""

    time: float
    error: str


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """The name of the cluster in notices, and the origins that operators allow."""

    cluster: str
    origins: Collection[str]


class Notifications:
    """Sends one request at a time to each webhook. `counted` gets each result: taken, failed or dropped."""

    def __init__(
        self,
        store: Store,
        webhooks: Webhooks,
        clock: Clock,
        post: Post,
        policy: DeliveryPolicy,
        begin: Callable[[Coroutine[Any, Any, None]], object],
        counted: Callable[[str], None] = lambda result: None,
    ) -> None:
        self._store = store
        self._webhooks = webhooks
        self._clock = clock
        self._post = post
        self._policy = policy
        self._begin = begin
        self._counted = counted
        self._scheduled: set[Key] = set()
        self._busy: set[Key] = set()
        self._full: set[Key] = set()
        self._changed: dict[Key, asyncio.Event] = {}  # one for each webhook that waits for a retry
        self.results: dict[Key, DeliveryResult] = {}

    async def load(self) -> None:
        """Send the notices that were still pending when the last server stopped."""
        for notice in await self._store.records(Notice):
            self._schedule(_key(notice))

    def notices_of(self, before: Task, task: Task) -> Sequence[Notice]:
        """Return the notices to store with this change. Webhooks with too many pending notices get none."""
        webhooks = self._webhooks.of(task.user)
        if not webhooks:
            return ()
        found = make_notices(webhooks, before, task, self._clock.now())
        return [notice for notice in found if _key(notice) not in self._full]

    def changed(self, before: Task | None, task: Task) -> None:
        """Send the notices of a change that is now stored. `before` is None if the task is new."""
        if before is not None:
            for notice in self.notices_of(before, task):
                self._schedule(_key(notice))

    def webhook_changed(self, webhook: Webhook) -> None:
        """Retry the failed deliveries of a changed webhook now."""
        key = (webhook.owner_name, webhook.name)
        if key in self._changed:
            self._changed[key].set()

    async def test(self, webhook: Webhook, notice: Notice) -> DeliveryResult:
        """Send one notice now, without retries. Return the result."""
        return await self._try(webhook, [notice])

    def _schedule(self, key: Key) -> None:
        self._scheduled.add(key)
        if key not in self._busy:
            self._busy.add(key)
            self._begin(self._deliver(key))

    async def _deliver(self, key: Key) -> None:
        try:
            while key in self._scheduled:
                await asyncio.sleep(BATCH_SECONDS)
                self._scheduled.discard(key)
                await retry_until_stored(partial(self._send_pending, key), "a notice")
        finally:
            self._busy.discard(key)

    async def _send_pending(self, key: Key) -> None:
        """Send all pending notices of a webhook. After a failure, wait and retry. Drop notices that are too old."""
        pause = FIRST_PAUSE
        while pending := await self._pending(key):
            webhook, now = self._webhooks.get(*key), self._clock.now()
            late = [
                each for each in pending if webhook is None or now - each.time > RETENTION_SECONDS
            ]
            if late:
                await self._drop(late)
            elif webhook is not None and (await self._try(webhook, pending)).error:
                pause = await self._pause(key, pause)
            else:
                await self._delete(pending)
                pause = FIRST_PAUSE

    async def _pending(self, key: Key) -> list[Notice]:
        """Return the oldest pending notices of a webhook, at most BATCH_SIZE."""
        owner, name = key
        found = await self._store.records(Notice, owner_name=owner, webhook=name)
        (self._full.add if len(found) >= MAX_PENDING else self._full.discard)(key)
        return sorted(found, key=attrgetter("time", "task_id", "run"))[:BATCH_SIZE]

    async def _try(self, webhook: Webhook, batch: Sequence[Notice]) -> DeliveryResult:
        now = self._clock.now()
        try:
            if not is_allowed(webhook.url, self._policy.origins):
                raise Unavailable(f"operators do not allow {origin_of(webhook.url)} any more")
            await self._post(
                build_request(webhook, self._policy.cluster, batch, now), webhook.format
            )
        except Unavailable as error:
            results = DeliveryResult(now, str(error))
        else:
            results = DeliveryResult(now, "")
        self._counted("failed" if results.error else "taken")
        self.results[webhook.owner_name, webhook.name] = results
        return results

    async def _pause(self, key: Key, pause: float) -> float:
        """Wait for `pause` seconds, or until the webhook is changed. Return the length of the next pause."""
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
        await self._delete(late)

    async def _delete(self, batch: Sequence[Notice]) -> None:
        await asyncio.gather(*(self._store.delete_record(each) for each in batch))


def _key(notice: Notice) -> Key:
    return (notice.owner_name, notice.webhook)

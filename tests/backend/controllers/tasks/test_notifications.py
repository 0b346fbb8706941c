"""Webhooks get all notices of tasks. Notices are batched, retried for a limited time, and sent again after a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from hai_backend.controllers.aio.background import BackgroundTasks
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.tasks import notifications
from hai_backend.controllers.tasks.notifications import DeliveryPolicy, Notifications
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.controllers.tasks.webhooks import Webhooks
from hai_backend.domain.accounts.webhook import Format, Notice, Webhook
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.store.memory.store import MemoryStore
from hai_backend.webhooks.payload import WebhookRequest
from tests.support.builders import a_spec
from tests.support.virtual_time import LoopTimers, run_virtually

ORIGIN = "https://hooks.example.org"
PHONE = Webhook("ada", "phone", f"{ORIGIN}/x", ("ended",), Format.JSON, "", "whsec_AAAA", 0.0)


class Platform:
    """A task manager with notifications, on a store that outlives it.

    `answers` returns the error of each request, or an empty string.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.clock = LoopTimers()
        self.work = BackgroundTasks()
        self.letters: list[tuple[float, list[str]]] = []
        self.answers: Callable[[WebhookRequest], str] = lambda letter: ""
        self.counted: list[str] = []
        self.known = Webhooks(self.store)
        self.notifying = Notifications(
            self.store,
            self.known,
            self.clock,
            self._post,
            DeliveryPolicy("lab", {ORIGIN}),
            self.work.run,
            self.counted.append,
        )
        self.task_manager = TaskManager(
            self.store,
            self.clock,
            ChangeFeed(),
            perform=lambda task, what: None,
            changed=self.notifying.changed,
            notices=self.notifying.notices_of,
        )

    async def start(self) -> None:
        await self.known.load()
        await self.task_manager.load()
        await self.notifying.load()

    async def _post(self, letter: WebhookRequest, format: Format) -> None:
        told = [each["id"] for each in json.loads(letter.body)["data"]["events"]]
        self.letters.append((self.clock.now(), told))
        if why := self.answers(letter):
            raise Unavailable(why)

    async def ended(self, name: str, user: str = "ada") -> Task:
        """Return a task that was cancelled before it ran."""
        task = await self.task_manager.submit(user, a_spec(name), "")
        return await self.task_manager.stop(task.id, user, Outcome.CANCELED)

    async def waiting(self) -> int:
        return len(await self.store.records(Notice))


def virtually(work: Callable[[Platform], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        platform = Platform()
        await platform.known.save(PHONE)
        await platform.start()
        await work(platform)
        await platform.work.close()

    run_virtually(run())


def test_what_ends_together_is_told_together() -> None:
    async def work(platform: Platform) -> None:
        for number in range(60):
            await platform.ended(f"t{number}")
        await platform.ended("of another", "bob")
        await asyncio.sleep(5)
        assert [told for _, told in platform.letters] == [
            [f"{number}.0.ended" for number in range(1, 51)],
            [f"{number}.0.ended" for number in range(51, 61)],
        ]
        assert await platform.waiting() == 0
        assert platform.counted == ["taken", "taken"]

    virtually(work)


def test_nothing_is_written_of_who_has_no_webhook() -> None:
    async def work(platform: Platform) -> None:
        await platform.ended("t", "bob")
        assert await platform.waiting() == 0
        await asyncio.sleep(5)
        assert platform.letters == []

    virtually(work)


def test_what_is_not_taken_is_tried_again_more_and_more_seldom() -> None:
    async def work(platform: Platform) -> None:
        platform.answers = lambda letter: "404" if len(platform.letters) < 4 else ""
        began = platform.clock.now()
        await platform.ended("t")
        await asyncio.sleep(15)
        await platform.ended("later")
        await asyncio.sleep(600)
        assert [(round(at - began), told) for at, told in platform.letters] == [
            (1, ["1.0.ended"]),
            (11, ["1.0.ended"]),
            (31, ["1.0.ended", "2.0.ended"]),
            (71, ["1.0.ended", "2.0.ended"]),
        ]
        assert await platform.waiting() == 0
        assert platform.notifying.results["ada", "phone"].error == ""

    virtually(work)


def test_a_webhook_that_is_mended_is_told_at_once() -> None:
    async def work(platform: Platform) -> None:
        platform.answers = lambda letter: "" if letter.url.endswith("/right") else "404"
        await platform.ended("t")
        await asyncio.sleep(1000)
        assert platform.notifying.results["ada", "phone"].error == "404"
        mended = replace(PHONE, url=f"{ORIGIN}/right")
        await platform.known.save(mended)
        platform.notifying.webhook_changed(mended)
        await asyncio.sleep(0.1)
        assert await platform.waiting() == 0

    virtually(work)


def test_who_takes_nothing_for_a_day_is_not_told() -> None:
    async def work(platform: Platform) -> None:
        platform.answers = lambda letter: "404"
        await platform.ended("t")
        with capture_logs() as lines:
            await asyncio.sleep(25 * 3600)
        assert await platform.waiting() == 0
        assert [line["webhook"] for line in lines] == ["phone"]
        assert platform.counted[-1] == "dropped"
        assert len(platform.letters) < 160

    virtually(work)


def test_of_a_webhook_that_is_deleted_nothing_is_left() -> None:
    async def work(platform: Platform) -> None:
        platform.answers = lambda letter: "404"
        await platform.ended("t")
        await asyncio.sleep(2)
        await platform.known.delete(PHONE)
        platform.notifying.webhook_changed(PHONE)
        await asyncio.sleep(3600)
        assert (await platform.waiting(), len(platform.letters)) == (0, 1)

    virtually(work)


def test_an_origin_that_is_no_longer_allowed_hears_nothing() -> None:
    async def work(platform: Platform) -> None:
        await platform.known.save(replace(PHONE, url="https://inside.example.org/x"))
        await platform.ended("t")
        await asyncio.sleep(2)
        assert platform.letters == []
        why = platform.notifying.results["ada", "phone"].error
        assert why == "operators do not allow https://inside.example.org any more"

    virtually(work)


def test_the_next_server_tells_what_this_one_did_not() -> None:
    async def work(platform: Platform) -> None:
        task = await platform.ended("t")
        await platform.work.close()  # the server crashes before it sends a notice
        assert (task.state, platform.letters) == (TaskState.FINISHED, [])
        following = Platform(platform.store)
        await following.start()
        await asyncio.sleep(2)
        assert [told for _, told in following.letters] == [["1.0.ended"]]
        assert await following.waiting() == 0
        await following.work.close()

    virtually(work)


class Refusing(MemoryStore):
    """A store that refuses to write tasks while `full`."""

    full = False

    async def save_task(self, task: Task, *more: Any) -> Task | None:
        if self.full:
            raise Unavailable("the disk of the database is full")
        return await super().save_task(task, *more)


def test_what_was_not_written_is_not_told() -> None:
    async def run() -> None:
        platform = Platform(store := Refusing())
        await platform.known.save(PHONE)
        task = await platform.task_manager.submit("ada", a_spec("t"), "")
        store.full = True
        with pytest.raises(Unavailable):
            await platform.task_manager.apply(task.id, ev.StopAsked("ada", Outcome.CANCELED))
        await asyncio.sleep(60)
        assert (platform.letters, await platform.waiting()) == ([], 0)
        await platform.work.close()

    run_virtually(run())


def test_of_very_many_that_wait_no_more_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "MAX_PENDING", 3)

    async def work(platform: Platform) -> None:
        platform.answers = lambda letter: "404"
        for number in range(3):
            await platform.ended(f"t{number}")
        await asyncio.sleep(5)
        await platform.ended("one more")
        assert await platform.waiting() == 3

    virtually(work)


def test_a_database_that_is_away_is_waited_for() -> None:
    async def work(platform: Platform) -> None:
        await platform.ended("t")
        real, away = platform.store.records, 3

        async def records(kind: type[Any], **equals: object) -> list[Any]:
            nonlocal away
            away -= 1
            if away >= 0:
                raise Unavailable("the database is away")
            return await real(kind, **equals)

        platform.store.records = records  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert [told for _, told in platform.letters] == [["1.0.ended"]]

    virtually(work)

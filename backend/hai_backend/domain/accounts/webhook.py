"""Webhooks receive events of a user's tasks over HTTPS. Notices are the events that are still to be sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.task import Outcome, Task


class WebhookEvent(StrEnum):
    """The changes of a task to which webhooks subscribe. FAILED stands for ends with the outcome FAILED only."""

    STARTED = "started"
    SUSPENDED = "suspended"
    ENDED = "ended"
    FAILED = "failed"


class Format(StrEnum):
    """The format that the receiver expects."""

    JSON = "json"
    SLACK = "slack"
    DISCORD = "discord"
    FEISHU = "feishu"
    DINGTALK = "dingtalk"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook of a user, for tasks with `tag`, or for all tasks if `tag` is empty."""

    owner_name: str
    name: str
    url: str
    news: tuple[str, ...]
    format: Format
    tag: str
    secret: str  # key of the signature of JSON bodies
    created_at: float

    def subscribes_to(self, news: WebhookEvent, task: Task) -> bool:
        """Return whether the webhook receives this event of a task of its owner."""
        failed = news is WebhookEvent.ENDED and task.outcome is Outcome.FAILED
        return (not self.tag or self.tag in task.tags) and (
            news in self.news or (failed and WebhookEvent.FAILED in self.news)
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that is stored until it is sent to a webhook. `facts` describe the task at the time of the event."""

    owner_name: str
    webhook: str
    task_id: int
    run: int
    news: WebhookEvent
    time: float
    facts: Mapping[str, str]

    @property
    def id(self) -> str:
        """The identifier of the event, equal for every attempt to send it."""
        return f"{self.task_id}.{self.run}.{self.news}"


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL. Only these are shown and logged: other parts may be secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}".lower()


def is_allowed(url: str, origins: Collection[str]) -> bool:
    """Return whether the operators allow requests to the origin of this URL."""
    return origin_of(url) in origins

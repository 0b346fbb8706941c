"""Webhooks, which receive events of a user's tasks over HTTPS, and notices, the events that are still to be sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.task import Outcome, Task


class WebhookEvent(StrEnum):
    """Changes of a task that webhooks subscribe to. A failure is an end too; a webhook for failures gets no other
    ends.
    """

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
    """A webhook of a user. `tag`: only for tasks with this tag; empty: for all."""

    owner_name: str
    name: str
    url: str
    news: tuple[str, ...]
    format: Format
    tag: str
    secret: str  # bodies in JSON are signed with it
    created_at: float

    def subscribes_to(self, news: WebhookEvent, task: Task) -> bool:
        """Whether it receives this event of its owner's task."""
        failed = news is WebhookEvent.ENDED and task.outcome is Outcome.FAILED
        return (not self.tag or self.tag in task.tags) and (
            news in self.news or (failed and WebhookEvent.FAILED in self.news)
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """An event to send to a webhook; stored until it is sent. `facts` describe the task at the time of the event."""

    owner_name: str
    webhook: str
    task_id: int
    run: int
    news: WebhookEvent
    time: float
    facts: Mapping[str, str]

    @property
    def id(self) -> str:
        """The same for every try to send it."""
        return f"{self.task_id}.{self.run}.{self.news}"


def origin_of(url: str) -> str:
    """Scheme, host and port. Only these may be shown and logged: the rest of a webhook's URL is often a secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}".lower()


def is_allowed(url: str, origins: Collection[str]) -> bool:
    """Whether the operators allow the server to send requests there."""
    return origin_of(url) in origins

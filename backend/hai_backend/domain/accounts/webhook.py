"""Webhooks: whom the server tells, over HTTPS, what becomes of a user's tasks. Notices: what it has still to tell."""

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
    """What the other side understands."""

    JSON = "json"
    SLACK = "slack"
    DISCORD = "discord"
    FEISHU = "feishu"
    DINGTALK = "dingtalk"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One of a user's. `tag`: only tasks that have it; empty: all of them."""

    owner_name: str
    name: str
    url: str
    news: tuple[str, ...]
    format: Format
    tag: str
    secret: str  # bodies in JSON are signed with it
    created_at: float

    def subscribes_to(self, news: WebhookEvent, task: Task) -> bool:
        """Whether it gets a notice of this event of a task of its owner."""
        failed = news is WebhookEvent.ENDED and task.outcome is Outcome.FAILED
        return (not self.tag or self.tag in task.tags) and (
            news in self.news or (failed and WebhookEvent.FAILED in self.news)
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that a webhook is to be told; it is kept until that is done. `facts` are of the moment it tells of."""

    owner_name: str
    webhook: str
    task_id: int
    run: int
    news: WebhookEvent
    time: float
    facts: Mapping[str, str]

    @property
    def id(self) -> str:
        """The same whenever it is told again."""
        return f"{self.task_id}.{self.run}.{self.news}"


def origin_of(url: str) -> str:
    """Scheme, host and port: what may be shown and logged, as the rest of a webhook's URL is often a secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}".lower()


def is_allowed(url: str, origins: Collection[str]) -> bool:
    """Whether the operators let the server speak to it."""
    return origin_of(url) in origins

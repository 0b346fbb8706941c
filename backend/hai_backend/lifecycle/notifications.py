"""Makes the notices that webhooks get when a task has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_backend.domain.accounts.webhook import Notice, Webhook, WebhookEvent
from hai_backend.domain.task import Task, TaskState

_REASON_CHARS = 500


def make_notices(
    webhooks: Iterable[Webhook], before: Task, task: Task, now: float
) -> tuple[Notice, ...]:
    """Return one notice for each webhook of the owner that subscribes to this change."""
    news = webhook_event(before, task)
    if news is None:
        return ()
    facts, run = _facts(news, task), task.run.number if task.run else 0
    return tuple(
        Notice(hook.owner_name, hook.name, task.id, run, news, now, facts)
        for hook in webhooks
        if hook.subscribes_to(news, task)
    )


def webhook_event(before: Task, task: Task) -> WebhookEvent | None:
    """Return what has happened to the task. If several changes occurred at once, the last one counts."""
    if task.state is not before.state and task.state is TaskState.FINISHED:
        return WebhookEvent.ENDED
    if task.state is not before.state and task.state is TaskState.SUSPENDED:
        return WebhookEvent.SUSPENDED
    if _started(task) not in (0, _started(before)):
        return WebhookEvent.STARTED
    return None


def _started(task: Task) -> int:
    """Return the number of the run that has started, or 0."""
    return task.run.number if task.run and task.run.started_at is not None else 0


def _facts(news: WebhookEvent, task: Task) -> Mapping[str, str]:
    reason = task.run.reason if task.run and news is WebhookEvent.SUSPENDED else task.reason
    ran = task.finished_at - task.started_at if task.finished_at and task.started_at else None
    facts = {
        "name": task.spec.name,
        "group": task.spec.resource.group,
        "nodes": str(task.node_count),
        "outcome": task.outcome or "",
        "reason": "" if news is WebhookEvent.STARTED else reason[:_REASON_CHARS],
        "seconds": "" if ran is None else f"{ran:.0f}",
    }
    return {name: value for name, value in facts.items() if value}

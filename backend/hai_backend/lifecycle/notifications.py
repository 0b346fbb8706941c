"""What webhooks are told when a task has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_backend.domain.accounts.webhook import News, Notice, Webhook
from hai_backend.domain.task import Task, TaskState

_REASON_CHARS = 500


def notices(
    webhooks: Iterable[Webhook], before: Task, task: Task, now: float
) -> tuple[Notice, ...]:
    """One for each webhook of its owner that wants to know of this change."""
    news = news_of(before, task)
    if news is None:
        return ()
    facts, run = _facts(news, task), task.run.number if task.run else 0
    return tuple(
        Notice(hook.owner_name, hook.name, task.id, run, news, now, facts)
        for hook in webhooks
        if hook.wants(news, task)
    )


def news_of(before: Task, task: Task) -> News | None:
    """What has become of it; of several at once the last."""
    if task.state is not before.state and task.state is TaskState.FINISHED:
        return News.ENDED
    if task.state is not before.state and task.state is TaskState.SUSPENDED:
        return News.SUSPENDED
    if _started(task) not in (0, _started(before)):
        return News.STARTED
    return None


def _started(task: Task) -> int:
    """The number of the run whose programs were told to go; 0: none."""
    return task.run.number if task.run and task.run.started_at is not None else 0


def _facts(news: News, task: Task) -> Mapping[str, str]:
    reason = task.run.reason if task.run and news is News.SUSPENDED else task.reason
    ran = task.finished_at - task.started_at if task.finished_at and task.started_at else None
    told = {
        "name": task.spec.name,
        "group": task.spec.resource.group,
        "nodes": str(task.node_count),
        "outcome": task.outcome or "",
        "reason": "" if news is News.STARTED else reason[:_REASON_CHARS],
        "seconds": "" if ran is None else f"{ran:.0f}",
    }
    return {name: value for name, value in told.items() if value}

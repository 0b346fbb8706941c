"""Builds the response to DryRunTask: the result of the dry run as a message with a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.scheduling.convert_remedy import quota_to_proto, victim_to_proto
from hai_backend.api.scheduling.explain_response import Facts, remedies_to_proto, tasks_ahead
from hai_backend.api.tasks.convert import task_to_proto, wait_to_proto
from hai_backend.domain.formatting import format_count
from hai_backend.scheduler.explain.dry_run import DryRun, Outcome

_MAX_NAMED = 10  # nodes or tasks in one sentence


def dry_run_response(facts: Facts, result: DryRun) -> pb.DryRunTaskResponse:
    """Return the response. The task in `facts` has no id yet."""
    wait = result.wait

    def visible_name(task_id: int) -> str:
        other = facts.unfinished.get(task_id)
        return other.spec.name if other and facts.can_see(other) else ""

    return pb.DryRunTaskResponse(
        task=task_to_proto(facts.task, full=True),
        outcome=result.outcome.value,
        message=_describe(facts, result),
        effective_priority=result.level,
        nodes=result.nodes,
        victims=[victim_to_proto(victim, visible_name) for victim in result.victims],
        waiting=wait_to_proto(wait) if wait else None,
        ahead=list(tasks_ahead(facts, wait)) if wait and result.outcome is Outcome.WAITS else [],
        quotas=[quota_to_proto(row) for row in result.quota],
        flips=remedies_to_proto(facts),
    )


def _describe(facts: Facts, result: DryRun) -> str:
    message = result.wait.message if result.wait else "its user is not active"
    match result.outcome:
        case Outcome.STARTS:
            return f"would start at once at {result.level.name} on {_list(result.nodes)}"
        case Outcome.PROMISED:
            victims = _list(str(victim.task) for victim in result.victims)
            cost = sum(victim.cost for victim in result.victims if not victim.asked)
            return (
                f"would be promised {format_count(facts.task.node_count, 'node')} and start when task {victims} "
                f"has left; suspending costs {cost:.0f} node-seconds"
            )
        case Outcome.WAITS:
            place = f" at place {result.wait.place}" if result.wait and result.wait.place else ""
            return f"would wait{place}: {message}"
        case Outcome.NEVER:
            return f"could never start: {message}"


def _list(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _MAX_NAMED} more" if len(every) > _MAX_NAMED else ""
    return ", ".join(every[:_MAX_NAMED]) + more

"""The answer to a dry run: the trial as a message, and as a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.scheduling.convert_remedy import nodes, quota_to_proto, victim_to_proto
from hai_backend.api.scheduling.explain_response import Facts, ahead, remedies_to_proto
from hai_backend.api.tasks.convert import task_to_proto, wait_to_proto
from hai_backend.scheduler.explain.dry_run import DryRun, Outcome

_NAMED = 10  # nodes or tasks in one sentence


def rehearsed(facts: Facts, trial: DryRun) -> pb.DryRunTaskResponse:
    """The whole answer; the task of `facts` has no id yet."""
    wait = trial.wait

    def name(number: int) -> str:
        other = facts.unfinished.get(number)
        return other.spec.name if other and facts.sees(other) else ""

    return pb.DryRunTaskResponse(
        task=task_to_proto(facts.task, full=True),
        outcome=trial.outcome.value,
        message=_sentence(facts, trial),
        effective_priority=trial.level,
        nodes=trial.nodes,
        victims=[victim_to_proto(victim, name) for victim in trial.victims],
        waiting=wait_to_proto(wait) if wait else None,
        ahead=list(ahead(facts, wait)) if wait and trial.outcome is Outcome.WAITS else [],
        quotas=[quota_to_proto(row) for row in trial.quota],
        flips=remedies_to_proto(facts),
    )


def _sentence(facts: Facts, trial: DryRun) -> str:
    message = trial.wait.message if trial.wait else "its user is not active"
    match trial.outcome:
        case Outcome.STARTS:
            return f"would start at once at {trial.level.name} on {_first(trial.nodes)}"
        case Outcome.PROMISED:
            leave = _first(str(victim.task) for victim in trial.victims)
            cost = sum(victim.cost for victim in trial.victims if not victim.asked)
            return (
                f"would be promised {nodes(facts.task.node_count)} and start when task {leave} "
                f"has left; suspending costs {cost:.0f} node-seconds"
            )
        case Outcome.WAITS:
            place = f" at place {trial.wait.place}" if trial.wait and trial.wait.place else ""
            return f"would wait{place}: {message}"
        case Outcome.NEVER:
            return f"could never start: {message}"


def _first(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + more

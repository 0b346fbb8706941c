"""Builds the response to ExplainTask: why a task waits, in sentences with numbers, and what would help. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hai.client.tasks.diagnosis import diagnose
from hai.v1 import task_service_pb2 as pb
from hai_backend.api.nodes.allocation import count_held_nodes, nodes_held
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.scheduling.convert_remedy import (
    numbers_to_proto,
    quota_to_proto,
    remedy_text,
    remedy_to_proto,
)
from hai_backend.api.scheduling.what_if import Insight
from hai_backend.api.tasks import agent_silence
from hai_backend.api.tasks.convert import task_to_proto, wait_to_proto
from hai_backend.domain.formatting import format_count, format_utc
from hai_backend.domain.node import Node, NodeStatus
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import QuotaRow
from hai_backend.domain.spec import AfterOutcome
from hai_backend.domain.task import Rank, RunState, Task, TaskEvent
from hai_backend.lifecycle.saving import describe_next_protection, describe_save
from hai_backend.scheduler.explain.blockers import NodeNumbers
from hai_backend.scheduler.explain.remedy import Change

_MAX_LISTED = 20  # tasks or groups in one response
_MAX_PREDECESSORS = 20
_MAX_NAMED = 5  # in one sentence
_LEAVING = (RunState.SUSPENDING, RunState.STOPPING)
_SUSPENSIONS = ("SuspendAsked", "SuspendForced")  # kinds of events


@dataclass(frozen=True, slots=True)
class Facts:
    """The state that an explanation is computed from. `can_see` says whether the caller may see a task."""

    task: Task
    wait: Wait | None
    unfinished: Mapping[int, Task]
    nodes: Mapping[str, Node]
    quotas: tuple[QuotaRow, ...]  # of the task's user
    history: tuple[str, ...]
    now: float
    can_see: Callable[[Task], bool]
    insight: Insight = field(default_factory=Insight)
    lease_seconds: float = math.inf  # how long a rank runs on without answers to its heartbeats


def explain_response(facts: Facts) -> pb.ExplainTaskResponse:
    wait = facts.wait if facts.task.waiting else None
    blockers, missed = facts.insight.blockers, facts.insight.missed
    silent = agent_silence.silent_ranks(facts.task)
    failure = diagnose(task_to_proto(facts.task))
    if failure is not None:
        return pb.ExplainTaskResponse(
            constraints=failure.found, suggestions=failure.to_try, history=facts.history
        )
    return pb.ExplainTaskResponse(
        waiting=wait_to_proto(wait) if wait else None,
        constraints=list(_describe_silence(facts, silent) if silent else _constraints(facts, wait)),
        suggestions=list(_suggest(facts, wait, silent)),
        ahead=list(tasks_ahead(facts, wait)) if wait else [],
        history=facts.history,
        flips=remedies_to_proto(facts),
        quotas=[quota_to_proto(row) for row in blockers.quota],
        nodes=numbers_to_proto(blockers.nodes, _members(facts)) if wait and not missed else None,
        reserved_for=blockers.reserved_for,
        preemptions=[_preemption_to_proto(s, facts) for s in facts.task.progress.suspensions],
        silent_ranks=[agent_silence.silence_to_proto(rank) for rank in silent],
    )


def _describe_silence(facts: Facts, silent: Sequence[Rank]) -> Iterator[str]:
    return agent_silence.describe_silence(facts.task, silent, facts.nodes, facts.lease_seconds)


def _suggest(facts: Facts, wait: Wait | None, silent: Sequence[Rank]) -> Iterable[str]:
    if silent:
        return agent_silence.suggest_actions(facts.task, silent)
    return _suggest_for_wait(facts, wait) if wait else ()


def remedies_to_proto(facts: Facts) -> list[pb.Flip]:
    """Convert the changes that were tried and would help."""
    rows = facts.insight.blockers.quota
    return [remedy_to_proto(remedy, facts.task, rows) for remedy in facts.insight.remedies]


def _preemption_to_proto(suspension: Suspension, facts: Facts) -> pb.Preemption:
    other = facts.unfinished.get(suspension.for_task)
    return pb.Preemption(
        time=to_timestamp(suspension.at),
        id=suspension.for_task,
        user=other.user if other else "",
        higher=suspension.higher,
    )


def _constraints(facts: Facts, wait: Wait | None) -> Iterator[str]:
    task = facts.task
    if not task.waiting:
        yield f"task {task.id} does not wait: it is {(task.outcome or task.state).lower()}"
        yield from _describe_save(task, facts.now)
        return
    if wait is None:
        yield "no scheduling pass has seen the task since it was submitted or changed; ask again in a moment"
        return
    yield wait.message
    yield from _describe_saves(facts)
    if protection := describe_next_protection(task.progress.unsaved_suspensions):
        yield protection
    yield from _describe_predecessors(facts)
    if wait.why is WaitReason.AFTER:
        return  # nodes and quotas do not matter until the predecessors have ended
    yield _describe_group(facts)
    yield from _describe_unusable(_members(facts))
    yield from describe_foreign_pods(_members(facts))
    yield from _describe_quotas(facts, wait)
    yield from describe_protection(facts.insight.blockers.nodes)
    yield from _describe_reservation(facts)


def _describe_saves(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each task that saves before it leaves its nodes to this task."""
    for other in sorted(facts.unfinished.values(), key=lambda task: task.id):
        if other.run is not None and other.run.suspended_for == facts.task.id and not other.waiting:
            yield from _describe_save(other, facts.now)


def _describe_save(task: Task, now: float) -> Iterator[str]:
    run = task.run
    if run is not None and run.state in _LEAVING and run.state_bytes:
        yield f"task {task.id} is saving: {describe_save(run, now)}"


def _describe_predecessors(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each task that must end first."""
    outcomes = {after.task: after.outcome for after in facts.task.spec.options.after}
    for number in facts.task.awaited[:_MAX_PREDECESSORS]:
        task = facts.unfinished.get(number)
        state = "" if task is None else "; it waits" if task.waiting else "; it runs"
        outcome = outcomes.get(number, AfterOutcome.ENDED)  # absent if a predecessor handed it on
        name = f" ({task.spec.name})" if task and facts.can_see(task) else ""
        yield f"task {number}{name} has to have {outcome} first{state}"


def describe_protection(numbers: NodeNumbers) -> Iterator[str]:
    """Explain until when runs of a lower level keep their nodes."""
    if numbers.protected_runs:
        runs = ", ".join(map(str, numbers.protected_runs[:_MAX_NAMED]))
        more = "" if len(numbers.protected_runs) <= _MAX_NAMED else ", …"
        why = f": {numbers.protected_why}" if numbers.protected_why else ""
        yield (
            f"{format_count(numbers.protected, 'node')} held by runs that it outranks, but that are protected: "
            f"task {runs}{more}; the first of them until {format_utc(numbers.protected_until)}{why}"
        )


def _describe_reservation(facts: Facts) -> Iterator[str]:
    first = facts.insight.blockers.reserved_for
    if first and first != facts.task.id:
        yield f"task {first} is the first that lacks nodes: others may not delay its start"


def _describe_group(facts: Facts) -> str:
    members = _members(facts)
    held = nodes_held(facts.unfinished.values())
    usable = [n for n in members if n.usable]
    free = sum(n.name not in held for n in usable)
    status = Counter(n.status for n in members)
    where = facts.task.spec.resource.group
    return (
        f"group {where} has {format_count(len(members), 'node')}: {len(usable)} usable, of which {free} are free; "
        f"{status[NodeStatus.CORDONED]} cordoned, {status[NodeStatus.NOT_READY]} not ready"
    )


def _describe_unusable(members: Iterable[Node]) -> Iterator[str]:
    """Explain which nodes take no new work. Nodes that a person can bring back come first."""
    unusable = sorted(
        (n for n in members if not n.usable),
        key=lambda n: (n.status is NodeStatus.NOT_READY, n.name),
    )
    for node in unusable[:_MAX_NAMED]:
        yield f"node {node.name} {_STATUS_TEXTS[node.status]}" + f": {node.why}" * bool(node.why)
    if len(unusable) > _MAX_NAMED:
        yield f"and {format_count(len(unusable) - _MAX_NAMED, 'more node')} cannot be used: `hai nodes` says why"


def describe_foreign_pods(members: Iterable[Node]) -> Iterator[str]:
    """Explain on which usable nodes pods of other systems hold so much that little is left for tasks."""
    shared = sorted((n.name, n.foreign) for n in members if n.usable and n.foreign)
    yield from (f"node {name}: {foreign}" for name, foreign in shared[:_MAX_NAMED])
    if len(shared) > _MAX_NAMED:
        yield f"and of {format_count(len(shared) - _MAX_NAMED, 'more node')}: `hai nodes` says how much"


_STATUS_TEXTS = {
    NodeStatus.CORDONED: "takes no new work",
    NodeStatus.NOT_READY: "is not ready",
}


def _describe_quotas(facts: Facts, wait: Wait) -> Iterator[str]:
    user, group = facts.task.user, facts.task.spec.resource.group
    held = count_held_nodes(facts.unfinished.values())
    for row in facts.quotas:
        if row.group == group and row.priority in (wait.priority, Priority.AUTO):
            is_total = row.priority is Priority.AUTO
            level = "over all levels" if is_total else f"at {row.priority.name}"
            limit, used = format_count(row.nodes, "node"), held[user, group, row.priority]
            yield f"{user} may hold {limit} in {group} {level} and holds {used}"


def _suggest_for_wait(facts: Facts, wait: Wait) -> Iterator[str]:
    """Yield the remedies that were tried and suffice, then other changes that may help."""
    yield from (remedy_text(remedy, facts.task) for remedy in facts.insight.remedies)
    if facts.insight.missed:
        yield "ask again in a moment: there are too many questions now, so no changes were tried"
    task = facts.task
    suggests_resume = any(remedy.change is Change.RESUME for remedy in facts.insight.remedies)
    match wait.why:
        case WaitReason.HELD if not suggests_resume:
            yield f"release it: hai resume {task.id}"
        case WaitReason.BACKING_OFF if not suggests_resume:
            yield f"wait {max(0.0, task.not_before - facts.now):.0f} s, or release it now: hai resume {task.id}"
        case WaitReason.AFTER:
            yield "stop it and submit it again without the tasks that it should not wait for"
        case WaitReason.OUT_OF_QUOTA:
            yield from _suggest_own_tasks(facts)
        case WaitReason.NOT_ENOUGH_NODES | WaitReason.GROUP_TOO_SMALL | WaitReason.NODES_UNUSABLE:
            for group, count in _groups_with_room(facts, nodes_held(facts.unfinished.values())):
                yield f"group {group} has {format_count(count, 'free node')}"


def _suggest_own_tasks(facts: Facts) -> Iterator[str]:
    for row in facts.insight.blockers.quota:
        if (lack := row.after - row.allowed) > 0:
            group = facts.task.spec.resource.group
            yield f"stop or suspend own tasks that hold {format_count(lack, 'node')} in {group}"


def _groups_with_room(facts: Facts, held: frozenset[str]) -> list[tuple[str, int]]:
    """Return other groups with enough free nodes for the task, and the number of these nodes."""
    counts: dict[str, int] = {}
    for node in facts.nodes.values():
        if node.usable and node.name not in held and node.group != facts.task.spec.resource.group:
            counts[node.group] = counts.get(node.group, 0) + 1
    return [(g, n) for g, n in sorted(counts.items()) if n >= facts.task.node_count][:_MAX_LISTED]


def _members(facts: Facts) -> list[Node]:
    resource = facts.task.spec.resource
    return [
        node
        for node in facts.nodes.values()
        if node.group == resource.group and resource.zone in ("", node.zone)
    ]


def tasks_ahead(facts: Facts, wait: Wait) -> Iterator[pb.TaskAhead]:
    """Yield the tasks before this one in the queue, then the running tasks that keep their nodes."""
    for number in wait.ahead:
        if (other := facts.unfinished.get(number)) is not None:
            rule = facts.insight.blockers.rules.get(number, "")
            rule = rule or _describe_order(facts.task, wait, other)
            yield _task_ahead_to_proto(other, rule, facts)
    if wait.why is WaitReason.AFTER:
        return  # the task does not wait for nodes
    running = [t for t in facts.unfinished.values() if _keeps_nodes(t, facts.task, wait)]
    for other in sorted(running, key=lambda t: t.id)[:_MAX_LISTED]:
        yield _task_ahead_to_proto(other, "runs already", facts)


def _keeps_nodes(other: Task, task: Task, wait: Wait) -> bool:
    same_group = other.spec.resource.group == task.spec.resource.group
    return (
        same_group
        and not other.waiting
        and other.run is not None
        and other.run.priority >= wait.priority
    )


def _describe_order(task: Task, wait: Wait, other: Task) -> str:
    """Explain why another task comes first. Used for a task that did not wait at the time of the scheduling pass."""
    if not other.waiting:
        return "runs already"
    if other.priority is not Priority.AUTO and other.priority > wait.priority:
        return f"higher priority: {other.priority.name}"
    if (other.created_at, other.id) < (task.created_at, task.id):
        return "submitted earlier"
    return "ranked higher by the scheduling policy"


def _task_ahead_to_proto(other: Task, rule: str, facts: Facts) -> pb.TaskAhead:
    name = other.spec.name if facts.can_see(other) else ""
    return pb.TaskAhead(
        id=other.id, name=name, user=other.user, node_count=other.node_count, rule=rule
    )


def describe_suspensions(events: Iterable[tuple[int, TaskEvent]]) -> tuple[str, ...]:
    """Return a sentence for each request to suspend the task, and for each run that did not leave in time."""
    return tuple(
        f"{format_utc(event.time)} run {event.run}: {event.reason}"
        + f" (asked by {event.actor})" * (event.kind == "SuspendAsked")
        for _, event in events
        if event.kind in _SUSPENSIONS
    )

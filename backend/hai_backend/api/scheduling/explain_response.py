"""Why a task waits, in sentences with numbers, and what would help. Pure: a function of what is known now."""

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
    nodes,
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
from hai_backend.domain.task import Rank, Task, TaskEvent
from hai_backend.scheduler.explain.blockers import NodeNumbers
from hai_backend.scheduler.explain.remedy import Change

_MOST = 20  # tasks, nodes or groups named in one answer
_FIRSTS = 20  # tasks that have to end first
_NAMED = 5  # in one sentence


@dataclass(frozen=True, slots=True)
class Facts:
    """What an explanation may look at. `sees` says whether the caller may know a task's name."""

    task: Task
    wait: Wait | None
    unfinished: Mapping[int, Task]
    nodes: Mapping[str, Node]
    quotas: tuple[QuotaRow, ...]  # of the task's user
    history: tuple[str, ...]
    now: float
    sees: Callable[[Task], bool]
    insight: Insight = field(default_factory=Insight)
    lease: float = math.inf  # seconds that a rank runs on when its heartbeats are not answered


def explain(facts: Facts) -> pb.ExplainTaskResponse:
    """The whole answer."""
    wait = facts.wait if facts.task.waiting else None
    found, missed = facts.insight.blockers, facts.insight.missed
    silent = agent_silence.silent_ranks(facts.task)
    failed = diagnose(task_to_proto(facts.task))
    if failed is not None:
        return pb.ExplainTaskResponse(
            constraints=failed.found, suggestions=failed.to_try, history=facts.history
        )
    return pb.ExplainTaskResponse(
        waiting=wait_to_proto(wait) if wait else None,
        constraints=list(_silence(facts, silent) if silent else _constraints(facts, wait)),
        suggestions=list(_help(facts, wait, silent)),
        ahead=list(ahead(facts, wait)) if wait else [],
        history=facts.history,
        flips=remedies_to_proto(facts),
        quotas=[quota_to_proto(row) for row in found.quota],
        nodes=numbers_to_proto(found.nodes, _members(facts)) if wait and not missed else None,
        reserved_for=found.reserved_for,
        preemptions=[_preemption(s, facts) for s in facts.task.progress.suspensions],
        silent_ranks=[agent_silence.silence_to_proto(rank) for rank in silent],
    )


def _silence(facts: Facts, silent: Sequence[Rank]) -> Iterator[str]:
    return agent_silence.constraints(facts.task, silent, facts.nodes, facts.lease)


def _help(facts: Facts, wait: Wait | None, silent: Sequence[Rank]) -> Iterable[str]:
    if silent:
        return agent_silence.suggestions(facts.task, silent)
    return _suggestions(facts, wait) if wait else ()


def remedies_to_proto(facts: Facts) -> list[pb.Flip]:
    """Changes that were tried."""
    rows = facts.insight.blockers.quota
    return [remedy_to_proto(remedy, facts.task, rows) for remedy in facts.insight.remedies]


def _preemption(suspension: Suspension, facts: Facts) -> pb.Preemption:
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
        return
    if wait is None:
        yield "no scheduling pass has looked at the task since it was submitted or changed; ask again in a moment"
        return
    yield wait.message
    yield from _predecessors(facts)
    if wait.why is WaitReason.AFTER:
        return  # nodes and quotas are no matter until those have ended
    yield _group_numbers(facts)
    yield from _unusable(_members(facts))
    yield from shared_with_others(_members(facts))
    yield from _quota_numbers(facts, wait)
    yield from protection(facts.insight.blockers.nodes)
    yield from _reservation(facts)


def _predecessors(facts: Facts) -> Iterator[str]:
    """Those that have to end first, and how they are."""
    wanted = {after.task: after.outcome for after in facts.task.spec.options.after}
    for number in facts.task.awaited[:_FIRSTS]:
        task = facts.unfinished.get(number)
        now = "" if task is None else "; it waits" if task.waiting else "; it runs"
        outcome = wanted.get(number, AfterOutcome.ENDED)  # one that was handed on
        name = f" ({task.spec.name})" if task and facts.sees(task) else ""
        yield f"task {number}{name} has to have {outcome} first{now}"


def protection(numbers: NodeNumbers) -> Iterator[str]:
    """Who outranks a run and may still not have its nodes wants to know until when."""
    if numbers.protected_runs:
        runs = ", ".join(map(str, numbers.protected_runs[:_NAMED]))
        more = "" if len(numbers.protected_runs) <= _NAMED else ", …"
        why = f": {numbers.protected_why}" if numbers.protected_why else ""
        yield (
            f"{nodes(numbers.protected)} held by runs that it outranks, but that are protected: "
            f"task {runs}{more}; the first of them until {format_utc(numbers.protected_until)}{why}"
        )


def _reservation(facts: Facts) -> Iterator[str]:
    first = facts.insight.blockers.reserved_for
    if first and first != facts.task.id:
        yield f"task {first} is the first that lacks nodes: what would delay it is held back"


def _group_numbers(facts: Facts) -> str:
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


def _unusable(members: Iterable[Node]) -> Iterator[str]:
    """Which nodes take no new work, and why: those that somebody can bring back first."""
    found = sorted(
        (n for n in members if not n.usable),
        key=lambda n: (n.status is NodeStatus.NOT_READY, n.name),
    )
    for node in found[:_NAMED]:
        yield f"node {node.name} {_STATUS[node.status]}" + f": {node.why}" * bool(node.why)
    if len(found) > _NAMED:
        yield f"and {format_count(len(found) - _NAMED, 'more node')} cannot be used: `hai nodes` says why"


def shared_with_others(members: Iterable[Node]) -> Iterator[str]:
    """Usable nodes of which pods that are not ours hold much: tasks get what is left."""
    found = sorted((n.name, n.foreign) for n in members if n.usable and n.foreign)
    yield from (f"node {name}: {told}" for name, told in found[:_NAMED])
    if len(found) > _NAMED:
        yield f"and of {format_count(len(found) - _NAMED, 'more node')}: `hai nodes` says how much"


_STATUS = {
    NodeStatus.CORDONED: "takes no new work",
    NodeStatus.NOT_READY: "is not ready",
}


def _quota_numbers(facts: Facts, wait: Wait) -> Iterator[str]:
    user, group = facts.task.user, facts.task.spec.resource.group
    held = count_held_nodes(facts.unfinished.values())
    for row in facts.quotas:
        if row.group == group and row.priority in (wait.priority, Priority.AUTO):
            total = row.priority is Priority.AUTO
            level = "over all levels" if total else f"at {row.priority.name}"
            most, now = format_count(row.nodes, "node"), held[user, group, row.priority]
            yield f"{user} may hold {most} in {group} {level} and holds {now}"


def _suggestions(facts: Facts, wait: Wait) -> Iterator[str]:
    """What was tried and suffices; then what may help, but changes more than one thing, or another group."""
    yield from (remedy_text(remedy, facts.task) for remedy in facts.insight.remedies)
    if facts.insight.missed:
        yield "ask again in a moment: many ask just now, so no changes were tried"
    task = facts.task
    released = any(remedy.change is Change.RESUME for remedy in facts.insight.remedies)
    match wait.why:
        case WaitReason.HELD if not released:
            yield f"release it: hai resume {task.id}"
        case WaitReason.BACKING_OFF if not released:
            yield f"wait {max(0.0, task.not_before - facts.now):.0f} s, or release it now: hai resume {task.id}"
        case WaitReason.AFTER:
            yield "stop it and submit it again without the tasks that it shall not wait for"
        case WaitReason.OUT_OF_QUOTA:
            yield from _own_tasks(facts)
        case WaitReason.NOT_ENOUGH_NODES | WaitReason.GROUP_TOO_SMALL | WaitReason.NODES_UNUSABLE:
            for group, count in _free_elsewhere(facts, nodes_held(facts.unfinished.values())):
                yield f"group {group} has {format_count(count, 'free node')}"


def _own_tasks(facts: Facts) -> Iterator[str]:
    for row in facts.insight.blockers.quota:
        if (lack := row.after - row.allowed) > 0:
            group = facts.task.spec.resource.group
            yield f"stop or suspend own tasks that hold {format_count(lack, 'node')} in {group}"


def _free_elsewhere(facts: Facts, held: frozenset[str]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for node in facts.nodes.values():
        if node.usable and node.name not in held and node.group != facts.task.spec.resource.group:
            counts[node.group] = counts.get(node.group, 0) + 1
    return [(g, n) for g, n in sorted(counts.items()) if n >= facts.task.node_count][:_MOST]


def _members(facts: Facts) -> list[Node]:
    resource = facts.task.spec.resource
    return [
        node
        for node in facts.nodes.values()
        if node.group == resource.group and resource.zone in ("", node.zone)
    ]


def ahead(facts: Facts, wait: Wait) -> Iterator[pb.TaskAhead]:
    """Who stands before it, and who runs."""
    for number in wait.ahead:
        if (other := facts.unfinished.get(number)) is not None:
            rule = facts.insight.blockers.rules.get(number, "")
            yield _task_ahead(other, rule or _rule(facts.task, wait, other), facts)
    if wait.why is WaitReason.AFTER:
        return  # it lacks no nodes
    running = [t for t in facts.unfinished.values() if _keeps_nodes(t, facts.task, wait)]
    for other in sorted(running, key=lambda t: t.id)[:_MOST]:
        yield _task_ahead(other, "runs already", facts)


def _keeps_nodes(other: Task, task: Task, wait: Wait) -> bool:
    same_group = other.spec.resource.group == task.spec.resource.group
    return (
        same_group
        and not other.waiting
        and other.run is not None
        and other.run.priority >= wait.priority
    )


def _rule(task: Task, wait: Wait, other: Task) -> str:
    """For a task that the pass which was asked has not seen waiting."""
    if not other.waiting:
        return "runs already"
    if other.priority is not Priority.AUTO and other.priority > wait.priority:
        return f"higher priority: {other.priority.name}"
    if (other.created_at, other.id) < (task.created_at, task.id):
        return "submitted earlier"
    return "ranked higher by the scheduling policy"


def _task_ahead(other: Task, rule: str, facts: Facts) -> pb.TaskAhead:
    name = other.spec.name if facts.sees(other) else ""
    return pb.TaskAhead(
        id=other.id, name=name, user=other.user, node_count=other.node_count, rule=rule
    )


def suspensions(events: Iterable[tuple[int, TaskEvent]]) -> tuple[str, ...]:
    """One sentence for each time that the task was asked to leave its nodes."""
    return tuple(
        f"{format_utc(event.time)} run {event.run}: {event.reason} (asked by {event.actor})"
        for _, event in events
        if event.kind == "SuspendAsked"
    )

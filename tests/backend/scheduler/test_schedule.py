"""The rules as a table: a small cluster, and the decision about each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Decision, Start, Stop, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.domain.spec import TaskType
from hai_backend.scheduler import Policy, schedule
from hai_backend.scheduler.policy.policy import Demotion, Ranking
from hai_backend.scheduler.testing import (
    NOW,
    leaving,
    node,
    nodes,
    queued,
    quota,
    running,
    snap,
    starting,
)

P, W = Priority, WaitReason
EXTREME_HIGH, HIGH, ABOVE_NORMAL, NORMAL = P.EXTREME_HIGH, P.HIGH, P.ABOVE_NORMAL, P.NORMAL
UNDER_NORMAL, LOW, AUTO = P.UNDER_NORMAL, P.LOW, P.AUTO
PROMISED, FULL = W.WAITING_FOR_PREEMPTED, W.NOT_ENOUGH_NODES
OUT, NEVER = W.OUT_OF_QUOTA, W.QUOTA_EXCEEDED
STOP = "stop"
PACKED = Group("default", packed=True)
HAI = Policy(overhead_share=0.01)  # a slice is 6 500 s
BY_LEVELS = Policy(time_slices=False)
IN_ORDER = replace(HAI, ranking=Ranking.SUBMITTED)
WHOLE_RUNS = replace(IN_ORDER, time_slices=False)
LIMITED = Policy(default_quota=2)
GONE: Any = {"inactive_users": frozenset("u")}
GB = 1 << 30
JUPYTER = TaskType.JUPYTER
HUNTED = tuple(Suspension(NOW - 600.0 * i, 1) for i in range(30, 0, -1))


class For(int):
    """The task is suspended for this task."""


Fate = tuple[str, ...] | int | str | WaitReason
"""Named nodes: starts just there; a number: starts on so many; For(t); STOP; or why it waits."""


def fates(snapshot: Snapshot, policy: Policy = HAI) -> Mapping[int, Decision]:
    decisions = schedule(snapshot, policy).decisions
    found = {decision.task: decision for decision in decisions}
    assert len(found) == len(decisions), "one decision a task"
    return found


def matches(decision: Decision, fate: Fate) -> bool:
    match decision, fate:
        case Start(nodes=placed), tuple():
            return placed == fate
        case Suspend(for_task=for_task), For():
            return for_task == fate
        case Start(nodes=placed), int():
            return len(placed) == fate
        case Wait(why=why), WaitReason():
            return why is fate
        case Stop(), str():
            return fate == STOP
    return False


def case(name: str, snapshot: Snapshot, policy: Policy = HAI, /, **expected: Fate):  # type: ignore[no-untyped-def]
    return pytest.param(
        snapshot, policy, {int(k[1:]): fate for k, fate in expected.items()}, id=name
    )


def halves(count: int, **settings: int) -> list:  # type: ignore[type-arg]
    return nodes(count, gpus=8, **settings)


R1 = [
    case("an empty cluster and no tasks", snap()),
    case("one task on one free node", snap(node("a"), queued(1)), t1=("a",)),
    case("a gang takes all its nodes", snap(nodes(4), queued(1, 3)), t1=3),
    case("a gang takes no node when one is missing",
         snap(nodes(3), running(9, "n00", NORMAL), queued(1, 3)), t1=FULL),
    case("a later task passes a blocked one of its level",
         snap(nodes(3), running(9, "n00"), queued(1, 3), queued(2, 2)), t1=FULL, t2=2),
    case("a lower task passes a blocked one",
         snap(nodes(3), running(9, "n00", HIGH), queued(1, 3, HIGH), queued(2, 2, LOW)),
         t1=FULL, t2=2),
    case("a whole node without the gpus of a task is not taken",
         snap(nodes(1, gpus=0), queued(1, gpu=8)), t1=W.GROUP_TOO_SMALL),
    case("a whole node with more gpus than a task needs is taken, and the smallest of them",
         snap(node("a", gpus=1), node("b", gpus=8), node("c", gpus=2), queued(1, gpu=2)), t1=("c",)),
    case("a task that needs gpus suspends no task on a node without them",
         snap(node("a", gpus=0), node("b", gpus=8), running(8, "a", LOW), running(9, "b", LOW),
              queued(1, 1, HIGH, gpu=8)), t1=PROMISED, t9=For(1)),
    case("returned nodes of finished ranks are free",
         snap(nodes(3), running(9, "n00", node_count=3), queued(1, 2)), t1=("n01", "n02")),
    case("a node of another group is not taken",
         snap(node("a", group="g"), node("b"), queued(1, group="g")), t1=("a",)),
]  # fmt: skip

PACKED_CASES = [
    case("two halves share a node", snap(PACKED, halves(2), queued(1, gpu=4), queued(2, gpu=4)),
         t1=("n00",), t2=("n00",)),
    case("the third half opens another", snap(PACKED, halves(2), *(queued(i, gpu=4) for i in (1, 2, 3))),
         t3=("n01",), t1=1, t2=1),
    case("best fit takes the smallest hole",
         snap(PACKED, halves(2), running(8, "n00", gpu=2), running(9, "n01", gpu=5), queued(1, gpu=3)),
         t1=("n01",)),
    case("a part opens an empty node where the smallest hole is left",
         snap(PACKED, node("a", gpus=8, topology=("l2",)), node("b", gpus=8, topology=("l2",)),
              node("c", gpus=8, topology=("l1",)), queued(1, gpu=4)), t1=("c",)),
    case("a part does not break an empty node while a hole is there",
         snap(PACKED, halves(2), running(9, "n01", gpu=1), queued(1, gpu=1)), t1=("n01",)),
    case("a whole-node task needs an empty node",
         snap(PACKED, halves(1), running(9, "n00", gpu=1), queued(1)), t1=FULL),
    case("a whole-node task and parts exclude one another",
         snap(PACKED, halves(1), running(9, "n00"), queued(1, gpu=1)), t1=FULL),
    case("cpus limit too", snap(PACKED, halves(1, cpus=8), running(9, "n00", gpu=1, cpu=6), queued(1, cpu=4)),
         t1=FULL),
    case("memory limits too",
         snap(PACKED, halves(1, memory_bytes=8 * GB), queued(1, memory=5), queued(2, memory=5)),
         t1=1, t2=FULL),
    case("cpus that a node does not declare limit nobody", snap(PACKED, halves(1), queued(1, cpu=999)), t1=1),
    case("ranks of a gang may share a node", snap(PACKED, halves(2), queued(1, 4, gpu=4)),
         t1=("n00", "n00", "n01", "n01")),
    case("a gang of parts is whole or absent",
         snap(PACKED, halves(1), running(9, "n00", gpu=1), queued(1, 2, gpu=4)), t1=FULL),
    case("more gpus than any node has", snap(PACKED, halves(1), queued(1, gpu=9)), t1=W.GROUP_TOO_SMALL),
    case("promised parts are kept from later tasks",
         snap(PACKED, halves(1), leaving(9, "n00", LOW, gpu=4), queued(1, 1, HIGH, gpu=8), queued(2, 1, LOW, gpu=4)),
         t1=PROMISED, t2=FULL),
    case("promised parts take free nodes first",
         snap(PACKED, halves(3), leaving(8, "n00", gpu=8), leaving(9, "n01", gpu=8),
              queued(1, 2, gpu=8), queued(2, gpu=8)), IN_ORDER, t1=PROMISED, t2=PROMISED),
    case("a node from which one of two parts leaves is not empty",
         snap(PACKED, halves(2), running(9, "n00 n01", LOW, gpu=4), running(8, "n01", HIGH, gpu=4),
              queued(1, 1, HIGH, gpu=8), queued(2, 1, HIGH)), t1=PROMISED, t2=FULL, t9=For(1)),
    case("a node without free cpus takes tasks that want none",
         snap(PACKED, halves(1, cpus=8), running(9, "n00", gpu=1, cpu=8), queued(1, 2, gpu=1)), t1=("n00", "n00")),
    case("a node without free memory takes tasks that want none",
         snap(PACKED, halves(2, memory_bytes=8 * GB), running(8, "n00", gpu=1, memory=8), running(9, "n01", gpu=7),
              queued(1, 2, gpu=1)), t1=("n01", "n00")),
    case("cpus and memory come back with a victim",
         snap(PACKED, halves(1, cpus=8, memory_bytes=8 * GB), running(9, "n00", LOW, cpu=5, memory=5),
              queued(1, 1, HIGH, cpu=6, memory=6)), t1=PROMISED, t9=For(1)),
    case("a node without free gpus takes tasks that want none",
         snap(PACKED, halves(2, cpus=8), running(9, "n01", gpu=8, cpu=4), queued(1, cpu=2)), t1=("n01",)),
    case("only the part that hinders is suspended",
         snap(PACKED, halves(1), running(8, "n00", LOW, gpu=4), running(9, "n00", NORMAL, gpu=4),
              queued(1, 1, HIGH, gpu=4)), t1=PROMISED, t8=For(1)),
    case("a whole-node task suspends all parts of one node and no other",
         snap(PACKED, halves(2), *(running(i, "n00", LOW, gpu=4, since=9.0 * i) for i in (6, 7)),
              *(running(i, "n01", LOW, gpu=4, since=99.0 * i) for i in (8, 9)), queued(1, 1, HIGH)),
         t1=PROMISED, t6=For(1), t7=For(1)),
    case("parts weigh their share in a quota",
         snap(PACKED, halves(2), quota("u", NORMAL, 1), *(queued(i, gpu=4, user="u") for i in (1, 2, 3))),
         t1=1, t2=1, t3=OUT),
]  # fmt: skip


def part(task: int, on: str, gpu: int = 4, level: Priority = NORMAL, **settings: Any) -> SchedTask:
    """Return a small run that has had its slice, and ranks above a task that needs a whole node."""
    return running(task, on, level, gpu=gpu, since=settings.pop("since", 7000.0), **settings)


RELOCATION = [
    case("a small run moves so that a whole node is free",
         snap(PACKED, halves(2), part(8, "n00"), part(9, "n01"), queued(1)), IN_ORDER,
         t1=PROMISED, t8=For(1)),
    case("only when all who are in the way fit elsewhere",
         snap(PACKED, halves(2), part(8, "n00"), part(9, "n01", 6), queued(1)), IN_ORDER, t1=FULL),
    case("the emptier node is cleared",
         snap(PACKED, halves(2), part(8, "n00", 5), part(9, "n01", 3), queued(1)), IN_ORDER, t1=PROMISED, t9=For(1)),
    case("nobody moves twice, nor to where others move away",
         snap(PACKED, halves(3), part(7, "n00"), part(8, "n01"), part(9, "n02"), queued(1, 2)), IN_ORDER, t1=FULL),
    case("a gang gets as many nodes as it lacks",
         snap(PACKED, halves(4), part(7, "n00", 2), part(8, "n01", 2), part(9, "n02", 4), queued(1, 3)), IN_ORDER,
         t1=PROMISED, t7=For(1), t8=For(1)),
    case("a larger part fits as well",
         snap(PACKED, halves(2), part(8, "n00", 5), part(9, "n01", 3), queued(1, gpu=6)), IN_ORDER,
         t1=PROMISED, t9=For(1)),
    case("not before it has had its slice",
         snap(PACKED, halves(2), part(8, "n00", since=6000.0), part(9, "n01", since=6000.0), queued(1)), IN_ORDER,
         t1=FULL),
    case("but just then",
         snap(PACKED, halves(2), part(8, "n00", since=6500.0), part(9, "n01", since=6500.0), queued(1)), IN_ORDER,
         t1=PROMISED, t8=For(1)),
    case("nor a run of a higher level", snap(PACKED, halves(2), part(8, "n00", level=HIGH), part(9, "n01", level=HIGH),
         queued(1)), IN_ORDER, t1=FULL),
    case("nor one's own",
         snap(PACKED, halves(2), part(8, "n00", user="u1"), part(9, "n01", user="u1"), queued(1)), IN_ORDER, t1=FULL),
    case("nor gangs",
         snap(PACKED, halves(3), running(9, "n00 n01", gpu=2, since=7000.0), part(8, "n02", 5), queued(1, 2)), IN_ORDER,
         t1=FULL),
    case("only for the first that lacks nodes",
         snap(PACKED, halves(2), part(8, "n00"), part(9, "n01"), queued(1, 2), queued(2)), IN_ORDER, t1=FULL, t2=FULL),
    case("who can not be cleared away takes no room of others",
         snap(PACKED, halves(3), part(8, "n00", 2), part(9, "n00", 1, HIGH, since=9000.0), part(7, "n01"),
              part(6, "n02", level=HIGH), queued(1)), IN_ORDER, t1=PROMISED, t7=For(1)),
    case("not where slices are off",
         snap(PACKED, halves(2), part(8, "n00"), part(9, "n01"), queued(1)), WHOLE_RUNS, t1=FULL),
    case("a run that takes more cpus than GPUs moves as well",
         snap(PACKED, halves(2, cpus=32), part(8, "n00", 5, cpu=12), part(9, "n01", 3, cpu=12), queued(1)), IN_ORDER,
         t1=PROMISED, t9=For(1)),
    case("cpus and memory must fit, too",
         snap(PACKED, halves(2, cpus=8), part(8, "n00", cpu=6), part(9, "n01", cpu=6), queued(1)), IN_ORDER, t1=FULL),
    case("what was left for it is used before another node is cleared",
         snap(PACKED, halves(3), leaving(7, "n00", gpu=1, reserved_for=1), part(8, "n01"), part(9, "n02"), queued(1)),
         IN_ORDER, t1=PROMISED),
]  # fmt: skip


R2 = [
    case("within quota", snap(nodes(4), quota("u", NORMAL, 2), queued(1, 2, user="u")), t1=2),
    case("held nodes count",
         snap(nodes(4), quota("u", NORMAL, 2), running(9, "n00", user="u"), queued(1, 2, user="u")),
         t1=OUT),
    case("leaving nodes count",
         snap(nodes(4), quota("u", NORMAL, 2), leaving(9, "n00", user="u"), queued(1, 2, user="u")),
         t1=OUT),
    case("a start of this pass counts",
         snap(nodes(4), quota("u", NORMAL, 2), queued(1, 2, user="u"), queued(2, user="u")),
         IN_ORDER, t1=2, t2=OUT),
    case("a smaller own task passes one that is out of quota",
         snap(nodes(4), quota("u", NORMAL, 3), running(9, "n00 n01", user="u"), queued(1, 2, user="u"),
              queued(2, user="u")),
         t1=OUT, t2=1),
    case("more than the row can never start", snap(nodes(4), quota("u", NORMAL, 2), queued(1, 3, user="u")),
         t1=NEVER),
    case("a row of zero nodes", snap(nodes(4), quota("u", NORMAL, 0), queued(1, user="u")), t1=NEVER),
    case("rows of one level say nothing of another",
         snap(nodes(4), quota("u", HIGH, 0), queued(1, user="u")), t1=1),
    case("rows of another group say nothing",
         snap(nodes(4), quota("u", NORMAL, 0, "x"), queued(1, user="u")), t1=1),
    case("the default limits who has no row", snap(nodes(4), queued(1, 3)), LIMITED, t1=NEVER),
    case("a row beats the default", snap(nodes(4), quota("u", NORMAL, 3), queued(1, 3, user="u")), LIMITED, t1=3),
    case("the total limits all levels together",
         snap(nodes(4), quota("u", AUTO, 2), running(9, "n00", LOW, user="u"), queued(1, 2, HIGH, user="u")),
         t1=OUT),
    case("more than the total can never start", snap(nodes(4), quota("u", AUTO, 2), queued(1, 3, user="u")),
         t1=NEVER),
    case("a run above a reduced quota goes on",
         snap(nodes(2), quota("u", NORMAL, 0), running(9, "n00 n01", user="u"))),
    case("nobody is suspended for a task out of quota",
         snap(nodes(1), quota("u", HIGH, 0), running(9, "n00", LOW), queued(1, 1, HIGH, user="u")),
         t1=NEVER),
    case("a promise counts", snap(nodes(2), quota("u", HIGH, 1), running(8, "n00", LOW), running(9, "n01", LOW),
         queued(1, 1, HIGH, user="u"), queued(2, 1, HIGH, user="u")),
         t1=PROMISED, t2=OUT, t8=For(1)),
    case("of two runs with one id both count",
         snap(nodes(4), quota("u", NORMAL, 2), running(9, "n00", user="u"), running(9, "n01", user="u"),
              queued(1, user="u")), t1=OUT),
    case("a demoted run counts at the level of its start",
         snap(nodes(3), quota("u", ABOVE_NORMAL, 1), running(9, "n00", ABOVE_NORMAL, since=9999, user="u"),
              queued(1, 1, ABOVE_NORMAL, user="u")), t1=OUT),
]  # fmt: skip

R3 = [
    case("the higher level first", snap(nodes(1), queued(1, 1, LOW), queued(2, 1, HIGH)), t2=1, t1=FULL),
    case("then first submission", snap(nodes(1), queued(1, created_at=5.0), queued(2, created_at=4.0)),
         t2=1, t1=FULL),
    case("then the id", snap(nodes(1), queued(2, created_at=1.0), queued(1, created_at=1.0)), t1=1, t2=FULL),
    case("users reorder their own tasks",
         snap(nodes(1), queued(1, user="u"), queued(2, user="u", custom_rank=-1.0)),
         t2=1, t1=FULL),
    case("all nine levels in order",
         snap(nodes(1), *(queued(i, 1, level) for i, level in enumerate(reversed(list(P))))),
         t8=1, **{f"t{i}": FULL for i in range(8)}),
]  # fmt: skip

AUTO_CASES = [
    case("AUTO without rows is NORMAL, not EXTREME_HIGH",
         snap(nodes(1), running(9, "n00", NORMAL), queued(1, 1, AUTO)), t1=FULL),
    case("AUTO takes the highest level with room",
         snap(nodes(1), quota("u", HIGH, 1), running(9, "n00", NORMAL), queued(1, 1, AUTO, user="u")),
         t1=PROMISED, t9=For(1)),
    case("AUTO falls to the next level when the first is full",
         snap(nodes(2), quota("u", HIGH, 1), running(8, "n00", HIGH, user="u"), running(9, "n01", NORMAL),
              queued(1, 1, AUTO, user="u")), t1=FULL),
    case("a user's first AUTO tasks get the high level, the surplus a lower one",
         snap(nodes(1), quota("u", HIGH, 1), running(9, "n00", NORMAL),
              queued(1, 1, AUTO, user="u"), queued(2, 1, AUTO, user="u")),
         t1=PROMISED, t2=FULL, t9=For(1)),
    case("AUTO larger than every row",
         snap(nodes(4), quota("u", HIGH, 1), quota("u", NORMAL, 1), queued(1, 2, AUTO, user="u")),
         t1=NEVER),
    case("AUTO skips levels whose row is too small for it",
         snap(nodes(4), quota("u", HIGH, 1), quota("u", LOW, 4), quota("u", NORMAL, 0),
              queued(1, 2, AUTO, user="u")), t1=2),
    case("AUTO with every row full waits",
         snap(nodes(4), quota("u", NORMAL, 1), running(9, "n00", user="u"), queued(1, 1, AUTO, user="u")),
         t1=OUT),
    case("AUTO obeys the total",
         snap(nodes(4), quota("u", AUTO, 1), running(9, "n00", user="u"), queued(1, 1, AUTO, user="u")),
         t1=OUT),
    case("AUTO tasks of a user do not interrupt one another, whatever levels they got",
         snap(nodes(1), quota("u", HIGH, 1), running(9, "n00", NORMAL, priority=AUTO, user="u"),
              queued(1, 1, AUTO, user="u")),
         t1=FULL),
]  # fmt: skip

R4_R5 = [
    case("a higher level suspends a lower", snap(nodes(1), running(9, "n00", LOW), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("an equal level does not", snap(nodes(1), running(9, "n00"), queued(1)), t1=FULL),
    case("a lower level does not", snap(nodes(1), running(9, "n00", HIGH), queued(1, 1, LOW)), t1=FULL),
    case("neighbouring levels count", snap(nodes(1), running(9, "n00", UNDER_NORMAL), queued(1, 1, NORMAL)),
         t1=PROMISED, t9=For(1)),
    case("a run just started has no protection from higher levels",
         snap(nodes(1), running(9, "n00", LOW, since=0), queued(1, 1, HIGH)), t1=PROMISED, t9=For(1)),
    case("ABOVE_NORMAL defends itself for 30 minutes",
         snap(nodes(1), running(9, "n00", ABOVE_NORMAL, since=1799), queued(1, 1, ABOVE_NORMAL)),
         BY_LEVELS, t1=FULL),
    case("and counts as NORMAL afterwards",
         snap(nodes(1), running(9, "n00", ABOVE_NORMAL, since=1800), queued(1, 1, ABOVE_NORMAL)),
         BY_LEVELS, t1=PROMISED, t9=For(1)),
    case("but not as less than NORMAL",
         snap(nodes(1), running(9, "n00", ABOVE_NORMAL, since=9e5), queued(1, 1, NORMAL)),
         BY_LEVELS, t1=FULL),
    case("the table of demotions is the policy's",
         snap(nodes(1), running(9, "n00", HIGH, since=11), queued(1, 1, NORMAL)),
         Policy(demotion={HIGH: Demotion(LOW, 10.0)}), t1=PROMISED, t9=For(1)),
    case("a user's own demoted run is not interrupted by an equal task",
         snap(nodes(1), running(9, "n00", ABOVE_NORMAL, since=9999, user="u"),
              queued(1, 1, ABOVE_NORMAL, user="u")),
         t1=FULL),
    case("a user's higher task interrupts the own lower one",
         snap(nodes(1), running(9, "n00", LOW, user="u"), queued(1, 1, HIGH, user="u")),
         t1=PROMISED, t9=For(1)),
    case("a run started as AUTO defends the level that it got",
         snap(nodes(1), running(9, "n00", HIGH, priority=AUTO), queued(1, 1, ABOVE_NORMAL)), t1=FULL),
]  # fmt: skip


def lately(*hours: float, higher: bool = True) -> tuple[Suspension, ...]:
    """Return suspensions so many hours ago, for task 99, the oldest first."""
    return tuple(Suspension(NOW - 3600 * ago, 99, higher) for ago in hours)


R6 = [
    case("a run past its minimum gives way to one that ranks higher",
         snap(nodes(1), running(9, "n00", since=900), queued(1)), t1=PROMISED, t9=For(1)),
    case("not before its minimum", snap(nodes(1), running(9, "n00", since=899), queued(1)), t1=FULL),
    case("nor to one that ranks lower", snap(nodes(1), running(9, "n00", since=1000), queued(1, run_seconds=9e5)),
         t1=FULL),
    case("nor without time slices", snap(nodes(1), running(9, "n00", since=9e5), queued(1)), BY_LEVELS, t1=FULL),
    case("each suspension of the last day lengthens the minimum",
         snap(nodes(1), running(9, "n00", since=1799, suspensions=lately(1, higher=False)), queued(1)), t1=FULL),
    case("by one minimum",
         snap(nodes(1), running(9, "n00", since=1800, suspensions=lately(1, higher=False)), queued(1)),
         t1=PROMISED, t9=For(1)),
    case("of an older day it does not",
         snap(nodes(1), running(9, "n00", since=1799, suspensions=lately(24, higher=False)), queued(1)),
         t1=PROMISED, t9=For(1)),
    case("after a suspension for a higher level a run has a slice of peace",
         snap(nodes(1), running(9, "n00", LOW, since=6499, suspensions=lately(2)), queued(1)), t1=FULL),
    case("and no more", snap(nodes(1), running(9, "n00", LOW, since=6500, suspensions=lately(2)), queued(1)),
         t1=PROMISED, t9=For(1)),
    case("not from urgent levels",
         snap(nodes(1), running(9, "n00", LOW, since=1, suspensions=lately(2)), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("but after two suspensions without progress, for the minimum time",
         snap(nodes(1), running(9, "n00", LOW, since=899, unsaved_suspensions=2), queued(1, 1, HIGH)), t1=FULL),
    case("and no longer",
         snap(nodes(1), running(9, "n00", LOW, since=900, unsaved_suspensions=2), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("or until it has saved",
         snap(nodes(1), running(9, "n00", LOW, since=60, saved_at=NOW - 1, unsaved_suspensions=2), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("at its daily budget a run has peace for the rest of the day",
         snap(nodes(1), running(9, "n00", LOW, since=80_000, suspensions=lately(*[23.9] * 24, higher=False)),
              queued(1)), t1=FULL),
    case("an equal that has waited for a slice takes its turn",
         snap(nodes(1), running(9, "n00", since=6500), queued(1, created_at=NOW - 6500)), IN_ORDER,
         t1=PROMISED, t9=For(1)),
    case("not before", snap(nodes(1), running(9, "n00", since=6500), queued(1, created_at=NOW - 6499)), IN_ORDER,
         t1=FULL),
    case("not within the slice of the other",
         snap(nodes(1), running(9, "n00", since=6499), queued(1, created_at=NOW - 8000)), IN_ORDER, t1=FULL),
    case("not when its user holds something",
         snap(nodes(2), running(8, "n01", user="u"), running(9, "n00", since=6500),
              queued(1, created_at=NOW - 6500, user="u")), IN_ORDER, t1=FULL),
    case("an own task that can not start does not take the turn",
         snap(nodes(1), quota("u", HIGH, 0), quota("u", NORMAL, 5), running(9, "n00", since=6500),
              queued(1, 99, user="u", created_at=NOW - 9000), queued(2, zone="x", user="u", created_at=NOW - 9000),
              queued(3, 1, HIGH, user="u", created_at=NOW - 9000), queued(4, user="u", created_at=NOW - 8000)),
         IN_ORDER, t1=W.GROUP_TOO_SMALL, t2=W.GROUP_TOO_SMALL, t3=NEVER, t4=PROMISED, t9=For(4)),
    case("of those that can the first takes it",
         snap(nodes(1), running(9, "n00", since=6500), queued(1, 99, user="u", created_at=NOW - 9000),
              queued(2, user="u", created_at=NOW - 7000), queued(3, user="u", created_at=NOW - 8000)),
         IN_ORDER, t1=W.GROUP_TOO_SMALL, t2=FULL, t3=PROMISED, t9=For(3)),
    case("a measured cost of suspending lengthens the slice",
         snap(nodes(1), running(9, "n00", since=6500, restart_seconds=66.0), queued(1, created_at=NOW - 6500)),
         IN_ORDER, t1=FULL),
    case("a user's own equals never interrupt one another",
         snap(nodes(1), running(9, "n00", since=9e4, user="u"), queued(1, user="u")), t1=FULL),
    case("another user's task passes the own equal that may not",
         snap(nodes(1), running(9, "n00", since=9e4, user="u"), queued(1, user="u"), queued(2)),
         t1=FULL, t2=PROMISED, t9=For(2)),
    case("who gave way does not take the nodes back within a slice",
         snap(nodes(1), running(9, "n00", since=2e3), queued(1, suspensions=(Suspension(NOW - 2e3, 9),))), t1=FULL),
    case("others may",
         snap(nodes(1), running(9, "n00", since=2e3), queued(1, suspensions=(Suspension(NOW - 2e3, 9),)),
              queued(2, created_at=NOW)), t1=FULL, t2=PROMISED, t9=For(2)),
    case("after a slice it does",
         snap(nodes(1), running(9, "n00", since=6501), queued(1, suspensions=(Suspension(NOW - 6501, 9),))),
         t1=PROMISED, t9=For(1)),
    case("who has waited for a day counts as NORMAL and comes first there",
         snap(nodes(1), running(9, "n00", UNDER_NORMAL), queued(1, 1, LOW, created_at=NOW - 86_400), queued(2)),
         t1=PROMISED, t9=For(1), t2=FULL),
    case("not before a day",
         snap(nodes(1), running(9, "n00", UNDER_NORMAL), queued(1, 1, LOW, created_at=NOW - 86_399)), t1=FULL),
    case("it still leaves higher levels alone",
         snap(nodes(1), running(9, "n00", HIGH, since=9e4), queued(1, 1, LOW, created_at=NOW - 9e5)), t1=FULL),
    case("and keeps its own level if that is higher",
         snap(nodes(1), running(9, "n00", ABOVE_NORMAL, since=1000), queued(1, 1, HIGH, created_at=NOW - 9e5)),
         t1=PROMISED, t9=For(1)),
    case("once it runs it keeps the level to which it was lifted",
         snap(nodes(1), running(9, "n00", LOW, since=60, created_at=NOW - 9e4), queued(1)), t1=FULL),
]  # fmt: skip

R8 = [
    case("who can not give nodes back does not pass a blocked task",
         snap(nodes(2), running(8, "n01", HIGH, since=0.0), queued(1, 2, HIGH), queued(2, 1, HIGH, run_seconds=9e4)),
         BY_LEVELS, t1=FULL, t2=FULL),
    case("who is expected to end before may pass",
         snap(nodes(2), running(8, "n01", HIGH, since=9e4), queued(1, 2, HIGH), queued(2, 1, HIGH)), BY_LEVELS,
         t1=FULL, t2=1),
    case("who ranks below may pass: it gives them back",
         snap(nodes(2), running(8, "n01", HIGH), queued(1, 2, HIGH), queued(2, 1, LOW)), BY_LEVELS,
         t1=FULL, t2=1),
    case("a node that is not reserved may be taken",
         snap(nodes(2, zone="A"), node("b", zone="B"), running(8, "n01", HIGH, since=0.0),
              queued(1, 2, HIGH, zone="A"), queued(2, 1, HIGH, run_seconds=9e4)), BY_LEVELS, t1=FULL, t2=("b",)),
    case("who needs no gpus passes a task that lacks only gpus, who needs some does not",
         snap(PACKED, halves(1, cpus=8), running(9, "n00", HIGH, since=0.0, gpu=6), queued(1, 1, HIGH, gpu=4),
              *(queued(i, 1, HIGH, run_seconds=9e4, **need) for i, need in ((2, {"gpu": 2}), (3, {"cpu": 2})))),
         BY_LEVELS, t1=FULL, t2=FULL, t3=1),
    case("who needs no gpus does not pass a task that lacks cpus, too",
         snap(PACKED, halves(1, cpus=8), running(9, "n00", HIGH, since=0.0, gpu=6), queued(1, 1, HIGH, gpu=4, cpu=8),
              queued(2, 1, HIGH, cpu=2, run_seconds=9e4)), BY_LEVELS, t1=FULL, t2=FULL),
    case("and by the next one as well",
         snap(nodes(2, zone="A"), node("b", zone="B"), node("c", zone="B"), running(8, "n01", HIGH, since=0.0),
              queued(1, 2, HIGH, zone="A"), *(queued(i, 1, HIGH, user="u", run_seconds=9e4) for i in (2, 3, 4))),
         BY_LEVELS, t1=FULL, t2=("b",), t3=("c",), t4=FULL),
    case("with slices an equal of another user gives back, an own one does not",
         snap(nodes(3), running(8, "n02", HIGH, since=0.0, user="u"), queued(1, 3, HIGH, user="u"),
              queued(2, 1, HIGH, user="u", run_seconds=9e4), queued(3, 1, HIGH, run_seconds=9e4)),
         t1=FULL, t2=FULL, t3=1),
]  # fmt: skip

R7 = [
    case("the lowest level goes first",
         snap(nodes(2), running(8, "n00", NORMAL, since=1), running(9, "n01", LOW, since=999), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("then who lost least since its start",
         snap(nodes(2), running(8, "n00", LOW, since=500), running(9, "n01", LOW, since=90), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("a checkpoint makes a run cheap",
         snap(nodes(2), running(8, "n00", LOW, since=500, saved_at=999_999.0), running(9, "n01", LOW, since=90),
              queued(1, 1, HIGH)),
         t1=PROMISED, t8=For(1)),
    case("a checkpoint of an earlier run does not make this one dearer",
         snap(nodes(2), running(8, "n00", LOW, since=50, saved_at=1.0), running(9, "n01", LOW, since=90),
              queued(1, 1, HIGH)),
         t1=PROMISED, t8=For(1)),
    case("a checkpoint in the future counts as one made now",
         snap(nodes(2), running(8, "n00", LOW, since=90, saved_at=2e6), running(9, "n01", LOW, since=0.0),
              queued(1, 1, HIGH)),
         t1=PROMISED, t8=For(1)),
    case("one small run instead of a large one",
         snap(nodes(5), running(8, "n00 n01 n02 n03", LOW, since=10), running(9, "n04", LOW, since=200),
              queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("one large run instead of many small ones when it loses less",
         snap(nodes(8), running(9, "n04 n05 n06 n07", LOW, since=10),
              *(running(i, f"n0{i}", LOW, since=50) for i in range(4)),
              queued(10, 4, HIGH)), t10=PROMISED, t9=For(10)),
    case("after a large one a small one fills the rest",
         snap(nodes(9), running(7, "n00 n01 n02 n03", LOW, since=10), running(8, "n04 n05 n06 n07", LOW, since=12),
              running(9, "n08", LOW, since=100), queued(1, 5, HIGH)),
         t1=PROMISED, t7=For(1), t9=For(1)),
    case("who turns out superfluous is spared",
         snap(nodes(5), running(8, "n00", LOW), running(9, "n01 n02 n03 n04", NORMAL), queued(1, 4, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("free nodes are used first",
         snap(nodes(3), running(8, "n00", LOW), running(9, "n01", LOW, since=99), queued(1, 2, HIGH)),
         t1=PROMISED, t8=For(1)),
    case("nobody leaves when all together do not suffice",
         snap(nodes(3), running(7, "n00", HIGH), running(8, "n01", LOW), running(9, "n02", LOW),
              queued(1, 3, HIGH)),
         t1=FULL),
    case("nobody leaves for a node in the wrong zone",
         snap(node("a", zone="A"), node("b", zone="B"), running(8, "a", HIGH), running(9, "b", LOW),
              queued(1, 1, HIGH, zone="A")),
         t1=FULL),
    case("a victim on an unusable node would free nothing",
         snap(node("a", cordoned=True), node("b"), running(8, "a", LOW, since=0),
              running(9, "b", LOW, since=99), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("two newcomers get victims of their own",
         snap(nodes(2), running(8, "n00", LOW), running(9, "n01", LOW), queued(1, 1, HIGH), queued(2, 1, HIGH)),
         t1=PROMISED, t2=PROMISED, t8=For(1), t9=For(2)),
    case("two equal newcomers of one user get victims too",
         snap(nodes(2), running(8, "n00", LOW), running(9, "n01", LOW),
              queued(1, 1, HIGH, user="u"), queued(2, 1, HIGH, user="u")),
         t1=PROMISED, t2=PROMISED, t8=For(1), t9=For(2)),
    case("of two superfluous victims the dearer is spared",
         snap(nodes(5), running(7, "n00", LOW, since=10), running(8, "n01", LOW, since=500),
              running(9, "n02 n03 n04", NORMAL), queued(1, 4, HIGH)),
         t1=PROMISED, t7=For(1), t9=For(1)),
    case("a second newcomer takes what a large victim leaves over",
         snap(nodes(2), running(9, "n00 n01", LOW), queued(1, 1, HIGH), queued(2, 1, HIGH)),
         t1=PROMISED, t2=PROMISED, t9=For(1)),
]  # fmt: skip

R7_MORE = [
    case("a named node is taken from its own run, not from a cheaper one",
         snap(nodes(2), running(8, "n00", LOW, since=1), running(9, "n01", LOW, since=999),
              queued(1, 1, HIGH, assigned_nodes=("n01",))), t1=PROMISED, t9=For(1)),
    case("runs that free nothing alone come last",
         snap(node("a", zone="A"), node("b", zone="B"), running(7, "b", LOW, since=500), running(8, "a", LOW, since=0),
              running(9, "a", LOW, since=1), queued(1, 1, HIGH)), t1=PROMISED, t7=For(1)),
    case("a run that stands elsewhere as well may be taken",
         snap(node("a", zone="A"), node("b", zone="B"), running(9, "a b", LOW), queued(1, 1, HIGH, zone="A")),
         t1=PROMISED, t9=For(1)),
    case("among equals work lost counts for each node, in steps of two",
         snap(nodes(4), running(7, "n00 n01", since=9000), running(8, "n02", since=7000), running(9, "n03", since=7000),
              queued(1, 2, created_at=NOW - 6500)), IN_ORDER, t1=PROMISED, t8=For(1), t9=For(1)),
    case("of two superfluous victims that of the higher level is spared",
         snap(nodes(5), running(7, "n00", UNDER_NORMAL, since=10), running(8, "n01", LOW, since=500),
              running(9, "n02 n03 n04", NORMAL), queued(1, 4, HIGH)), t1=PROMISED, t8=For(1), t9=For(1)),
    case("of two superfluous equals that of the higher rank is spared",
         snap(nodes(5), running(7, "n00", since=1000), running(8, "n01", since=7000),
              running(9, "n02 n03 n04", since=7000), queued(1, 4, created_at=NOW - 6e4)), IN_ORDER,
         t1=PROMISED, t8=For(1), t9=For(1)),
    case("of equal costs the lowest rank leaves, however large",
         snap(nodes(4), running(7, "n00 n01", since=7000), running(8, "n02", since=5000), running(9, "n03", since=5000),
              queued(1, 2, created_at=NOW - 6e4)), IN_ORDER, t1=PROMISED, t7=For(1)),
    case("within a step the lowest rank leaves first",
         snap(nodes(2), running(8, "n00", since=7000), running(9, "n01", since=8000, created_at=NOW - 9e4),
              queued(1, created_at=NOW - 6500)), IN_ORDER, t1=PROMISED, t8=For(1)),
]  # fmt: skip

R9 = [
    case("a newcomer waits for nodes that are being left and takes no victim",
         snap(nodes(2), leaving(8, "n00", LOW, reserved_for=1), running(9, "n01", LOW), queued(1, 1, HIGH)),
         t1=PROMISED),
    case("it starts when they are free", snap(nodes(2), running(9, "n01", LOW), queued(1, 1, HIGH)), t1=("n00",)),
    case("promised free nodes are kept from later tasks",
         snap(nodes(2), leaving(8, "n00", LOW, reserved_for=1), queued(1, 2, HIGH), queued(2, 1, LOW)),
         t1=PROMISED, t2=FULL),
    case("another victim only for what is still missing",
         snap(nodes(3), leaving(7, "n00", LOW, reserved_for=1), running(8, "n01", LOW),
              running(9, "n02", LOW, since=99),
              queued(1, 2, HIGH)), t1=PROMISED, t8=For(1)),
    case("a promise takes no more than is needed",
         snap(nodes(3), leaving(8, "n00", LOW), leaving(9, "n01", LOW), queued(1, 2), queued(2, 1)),
         IN_ORDER, t1=PROMISED, t2=PROMISED),
    case("a task that is being started gives nothing back",
         snap(nodes(1), starting(9, "n00", LOW), queued(1, 1, HIGH)), t1=FULL),
    case("nodes left for a task of another zone stay for it",
         snap(node("a", zone="A"), node("b", zone="B"), leaving(8, "b", LOW, reserved_for=2),
              leaving(9, "a", LOW, reserved_for=1),
              queued(1, 1, HIGH), queued(2, 1, HIGH, zone="B")),
         t1=PROMISED, t2=PROMISED),
    case("nodes that a user's stop frees are claimed in order",
         snap(nodes(1), leaving(9, "n00"), queued(1), queued(2)), t1=PROMISED, t2=FULL),
    case("a more urgent task takes over the promise",
         snap(nodes(1), leaving(9, "n00", LOW, reserved_for=1), queued(1, 1, HIGH), queued(2, 1, EXTREME_HIGH)),
         t2=PROMISED, t1=FULL),
]  # fmt: skip

R10_R12 = [
    case("one leaf instead of two",
         snap(node("a", topology=("l1",)), node("b", topology=("l2",)), node("c", topology=("l2",)), queued(1, 2)),
         t1=("b", "c")),
    case("the leaf with the smallest hole",
         snap(*(node(f"a{i}", topology=("l1",)) for i in range(3)),
              *(node(f"b{i}", topology=("l2",)) for i in range(2)), queued(1, 1)),
         t1=("b0",)),
    case("one spine instead of two", snap(node("a", topology=("l1", "s1")), node("b", topology=("l2", "s2")),
         node("c", topology=("l3", "s2")), queued(1, 2)), t1=("b", "c")),
    case("nodes without topology", snap(nodes(3), queued(1, 2)), t1=("n00", "n01")),
    case("a zone", snap(node("a", zone="A"), node("b", zone="B"), queued(1, zone="B")), t1=("b",)),
    case("no zone takes any", snap(node("a", zone="A"), queued(1)), t1=("a",)),
    case("an unknown zone has no nodes", snap(nodes(2), queued(1, zone="X")), t1=W.GROUP_TOO_SMALL),
    case("named nodes, in the order named",
         snap(nodes(3), queued(1, 2, assigned_nodes=("n02", "n00"))), t1=("n02", "n00")),
    case("a named node that is busy",
         snap(nodes(3), running(9, "n02"), queued(1, 1, assigned_nodes=("n02",))), t1=FULL),
    case("a named node is taken from a lower level",
         snap(nodes(3), running(9, "n02", LOW), queued(1, 1, HIGH, assigned_nodes=("n02",))),
         t1=PROMISED, t9=For(1)),
    case("a named node that is being left is waited for",
         snap(nodes(2), leaving(9, "n01", LOW), running(8, "n00", LOW), queued(1, 1, HIGH, assigned_nodes=("n01",))),
         t1=PROMISED),
    case("named parts take one rank a node",
         snap(PACKED, halves(2), queued(1, 2, gpu=4, assigned_nodes=("n01", "n00"))), t1=("n01", "n00")),
    case("named parts wait for just these nodes",
         snap(PACKED, halves(2), running(9, "n01", gpu=6), queued(1, 2, gpu=4, assigned_nodes=("n01", "n00"))),
         t1=FULL),
    case("an unknown named node", snap(nodes(3), queued(1, 1, assigned_nodes=("x",))), t1=W.NO_SUCH_NODE),
    case("a named node of another group",
         snap(node("a", group="g"), node("b"), queued(1, 1, assigned_nodes=("a",))), t1=W.NO_SUCH_NODE),
    case("a cordoned node takes nothing", snap(node("a", cordoned=True), queued(1)), t1=W.NODES_UNUSABLE),
    case("a node that is not ready takes nothing", snap(node("a", up=False), node("b"), queued(1)), t1=("b",)),
    case("too few usable nodes", snap(node("a", up=False), node("b"), queued(1, 2)), t1=W.NODES_UNUSABLE),
    case("a cordoned node keeps its run", snap(node("a", cordoned=True), running(9, "a"))),
    case("too few nodes", snap(nodes(2), queued(1, 3)), t1=W.GROUP_TOO_SMALL),
    case("no such group", snap(nodes(2), queued(1, group="x")), t1=W.NO_SUCH_GROUP),
    case("a group without nodes", snap(Group("x"), queued(1, group="x")), t1=W.GROUP_TOO_SMALL),
    case("one name for two nodes: neither is used",
         snap(node("a"), node("a", zone="Z"), node("b"), queued(1), queued(2)),
         t1=("b",), t2=FULL),
]  # fmt: skip

OTHERS = [
    case("held", snap(nodes(1), queued(1, held=True), queued(2)), t1=W.HELD, t2=1),
    case("backing off", snap(nodes(1), queued(1, not_before=1_000_060.0), queued(2)), t1=W.BACKING_OFF, t2=1),
    case("backed off", snap(nodes(1), queued(1, not_before=999_999.0)), t1=1),
    case("an inactive user's waiting task is stopped", snap(nodes(1), queued(1, user="u"), queued(2), **GONE),
         t1=STOP, t2=1),
    case("an inactive user's run is stopped, and its node goes to the next",
         snap(nodes(2), running(9, "n00", user="u"), running(8, "n01", LOW), queued(1, 1, HIGH), **GONE),
         t9=STOP, t1=PROMISED),
    case("an inactive user's leaving task is left alone", snap(nodes(1), leaving(9, "n00", user="u"), **GONE)),
    case("an inactive user's held task is stopped",
         snap(nodes(1), queued(1, user="u", held=True), **GONE), t1=STOP),
]  # fmt: skip

BAD_ROWS = [
    case(f"a bad row: {name}", snap(nodes(2), queued(1, **{"count": 1, **bad}), queued(2, 2)), t1=why, t2=2)
    for name, bad, why in [
        ("custom_rank NaN", {"custom_rank": nan}, W.INVALID),
        ("custom_rank infinite", {"custom_rank": inf}, W.INVALID),
        ("created_at NaN", {"created_at": nan}, W.INVALID),
        ("not_before NaN", {"not_before": nan}, W.INVALID),
        ("waiting_since NaN", {"waiting_since": nan}, W.INVALID),
        ("waiting_since infinite", {"waiting_since": -inf}, W.INVALID),
        ("run_seconds NaN", {"run_seconds": nan}, W.INVALID),
        ("restart_seconds infinite", {"restart_seconds": inf}, W.INVALID),
        ("no nodes", {"count": 0}, W.INVALID),
        ("fewer than no nodes", {"count": -3}, W.INVALID),
        ("a fraction of a node", {"count": 1.5}, W.INVALID),
        ("a number that is no level", {"priority": 17}, W.INVALID),
        ("negative gpus", {"gpu": -1}, W.INVALID),
        ("named nodes do not match the count", {"assigned_nodes": ("n00", "n01")}, W.INVALID),
        ("one node named twice", {"count": 2, "assigned_nodes": ("n00", "n00")}, W.INVALID),
        ("a huge gang", {"count": 10**30}, W.GROUP_TOO_SMALL),
        ("an unknown group", {"group": "\0"}, W.NO_SUCH_GROUP),
    ]
] + [
    case("two rows with one id", snap(nodes(2), queued(1), queued(1, 2), queued(2, 2)), t1=W.INVALID, t2=2),
    case("a waiting row with the id of a running one",
         snap(nodes(2), running(1, "n00", LOW), queued(1), queued(2, 2, HIGH)),
         t1=W.INVALID, t2=FULL),
    case("a run on unknown nodes", snap(nodes(2), running(9, "x y", LOW), queued(2, 2)), t2=2),
    case("a run of no nodes", snap(nodes(1), running(8, ""), queued(1)), t1=1),
    case("a run with times that are no numbers",
         snap(nodes(1), running(9, "n00", LOW, run_seconds=nan, waiting_since=nan, restart_seconds=nan, saved_at=nan),
              queued(1, 1, HIGH)), t1=PROMISED, t9=For(1)),
    case("a run without nodes is no victim",
         snap(nodes(1), running(8, "", LOW), running(9, "n00", LOW), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("two runs on one node: it is free when both are gone",
         snap(nodes(1), leaving(8, "n00", LOW), running(9, "n00", LOW), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("a run that started at no known time",
         snap(nodes(1), running(9, "n00", LOW, run_started_at=None), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("a run that started at NaN", snap(nodes(1), running(9, "n00", LOW, since=nan), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
    case("a run whose level nobody noted", snap(nodes(1), running(9, "n00", AUTO), queued(1, 1, HIGH)),
         t1=PROMISED, t9=For(1)),
]  # fmt: skip

HAI_DEFECTS = [
    case("10.1.1 an infeasible head drains nobody",
         snap(nodes(4), running(8, "n00 n01"), queued(1, 9, EXTREME_HIGH), queued(2, 2, LOW)),
         t1=W.GROUP_TOO_SMALL, t2=2),
    case("10.1.1 8 running, 4 queued and 2 running lower on 10 nodes: nobody is suspended in vain",
         snap(nodes(10), running(7, "n00 n01 n02 n03 n04 n05 n06 n07"), running(9, "n08 n09", LOW), queued(1, 4)),
         t1=FULL),
    case("10.1.2 an AUTO task without quota stops nothing",
         snap(nodes(2), quota("u", HIGH, 0, "x"), queued(1, 1, AUTO, user="u", group="x"), queued(2)),
         Policy(default_quota=0), t1=W.NO_SUCH_GROUP, t2=NEVER),
    case("10.1.2 AUTO where no level has quota",
         snap(nodes(2), quota("v", NORMAL, 2), queued(1, 1, AUTO, user="u"), queued(2, 2, user="v")),
         Policy(default_quota=0), t1=NEVER, t2=2),
    case("10.1.3 an older task does not kick a younger run of its level",
         snap(nodes(1), running(9, "n00"), queued(1)),
         t1=FULL),
    case("10.1.3 nor one of the same user",
         snap(nodes(1), running(9, "n00", user="u"), queued(1, user="u", custom_rank=-9.0)),
         t1=FULL),
    case("10.1.4 a preemption takes as many nodes as are missing",
         snap(nodes(4), *(running(i, f"n0{i}", LOW, since=i * 10.0) for i in (1, 2, 3)), queued(9, 2, HIGH)),
         t9=PROMISED, t1=For(9)),
    case("10.1.4 nodes held by dev containers are not counted as free",
         snap(nodes(2), running(9, "n00", EXTREME_HIGH), queued(1, 2)), t1=FULL),
    case("10.1.5 nothing starts on nodes that are not free yet",
         snap(nodes(1), leaving(9, "n00", LOW, reserved_for=1), queued(1, 1, HIGH)), t1=PROMISED),
    case("10.1.6 a task that is leaving is not asked again",
         snap(nodes(1), leaving(9, "n00", LOW), queued(1, 1, HIGH)), t1=PROMISED),
    case("10.1.9 custom_rank does not jump other users",
         snap(nodes(1), queued(1), queued(2, custom_rank=-1e9)), t1=1, t2=FULL),
    case("10.1.9 custom_rank trades only one's own places",
         snap(nodes(2), queued(1), queued(2, user="u"), queued(3), queued(4, user="u", custom_rank=-1e9)),
         t1=1, t4=1, t2=FULL, t3=FULL),
    case("a task that can never start keeps no place for a later one of its user",
         snap(nodes(1), queued(1, 9, user="u"), queued(2), queued(3, user="u", custom_rank=-1.0)),
         t1=W.GROUP_TOO_SMALL, t2=1, t3=FULL),
    case("10.1.9 the total is enforced",
         snap(nodes(2), quota("u", AUTO, 1), queued(1, user="u"), queued(2, 1, HIGH, user="u")),
         t2=1, t1=OUT),
]  # fmt: skip


R13 = [
    case("a spot container leaves for anybody, at once",
         snap(nodes(1), running(9, "n00", HIGH, since=60.0, spot=True), queued(1, 1, LOW)),
         t9=For(1), t1=PROMISED),
    case("and before a lower level that is not spot",
         snap(nodes(2), running(8, "n00", LOW), running(9, "n01", HIGH, spot=True), queued(1, 1, HIGH)),
         t9=For(1), t1=PROMISED),
    case("it is not protected, however often it had to leave",
         snap(nodes(1), running(9, "n00", HIGH, since=60.0, spot=True, suspensions=HUNTED), queued(1, 1, LOW)),
         t9=For(1), t1=PROMISED),
    case("it takes what is left, whatever level it asks for",
         snap(nodes(1), queued(1, 1, EXTREME_HIGH, spot=True), queued(2, 1, LOW)), t1=FULL, t2=1),
    case("it takes nodes from nobody",
         snap(nodes(1), running(9, "n00", LOW, since=1e6), queued(1, 1, HIGH, spot=True, created_at=1.0)), t1=FULL),
    case("quota counts it at its own level",
         snap(nodes(2), quota("u1", HIGH, 0), queued(1, 1, HIGH, spot=True)), t1=NEVER),
    case("dev containers go where the fewest are",
         snap(PACKED, halves(2), running(9, "n00", gpu=1), queued(1, gpu=1, task_type=JUPYTER)), t1=("n01",)),
    case("other small tasks go where the smallest hole is",
         snap(PACKED, halves(2), running(9, "n00", gpu=1), queued(1, gpu=1)), t1=("n00",)),
    case("of equally many containers the one that leaves more room counts less",
         snap(PACKED, halves(2), running(8, "n00", gpu=4), running(9, "n01", gpu=1),
              queued(1, gpu=1, task_type=JUPYTER)), t1=("n01",)),
    case("a promise to a dev container follows the same rule",
         snap(PACKED, halves(2), leaving(8, "n00", gpu=8), leaving(9, "n01", gpu=4), leaving(7, "n01", gpu=4),
              queued(1, gpu=1, task_type=JUPYTER)), t1=PROMISED),
]  # fmt: skip


@pytest.mark.parametrize(
    ("snapshot", "policy", "expected"),
    [*R1, *PACKED_CASES, *RELOCATION,
     *R2, *R3, *AUTO_CASES, *R4_R5, *R6, *R7, *R7_MORE, *R8, *R9, *R10_R12, *R13, *OTHERS, *BAD_ROWS,
     *HAI_DEFECTS],
)  # fmt: skip
def test_decisions(snapshot: Snapshot, policy: Policy, expected: Mapping[int, Fate]) -> None:
    found = fates(snapshot, policy)
    assert found.keys() == expected.keys(), found
    for task, fate in expected.items():
        assert matches(found[task], fate), f"{found[task]} is not {fate!r}"

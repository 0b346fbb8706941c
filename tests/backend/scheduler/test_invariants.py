"""For each rule, a plan that breaks it, and a similar plan that does not."""

from __future__ import annotations

from typing import Any

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Decision, Plan, Start, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler import Policy
from hai_backend.scheduler.invariants import violations
from hai_backend.scheduler.testing import (
    NOW,
    leaving,
    node,
    nodes,
    queued,
    quota,
    running,
    share,
    snap,
)

LOW, NORMAL, HIGH, AUTO = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.AUTO
PACKED = Group("default", packed=True)
MINIMUM = Policy().minimum_seconds
PATIENCE = Policy().patience_seconds
LONG = NOW - PATIENCE


def start(task: int, on: str, level: Priority = NORMAL) -> Start:
    return Start(task, tuple(on.split()), level, "")


def suspend(task: int, for_task: int, *, higher: bool = True) -> Suspend:
    return Suspend(task, for_task, "", higher)


def promised(task: int, level: Priority = NORMAL) -> Wait:
    return Wait(task, WaitReason.WAITING_FOR_PREEMPTED, "", place=1, priority=level)


def blocked(task: int, level: Priority = NORMAL, place: int = 1) -> Wait:
    return Wait(task, WaitReason.NOT_ENOUGH_NODES, "", place=place, priority=level)


def case(
    snapshot: Snapshot, *decisions: Decision, messages: str = "", id: str, **settings: Any
) -> pytest.ParameterSet:
    return pytest.param(
        snapshot, decisions, Policy(**settings), [messages] if messages else [], id=id
    )


def taken(*, since: float = MINIMUM, **settings: Any) -> Snapshot:
    """Return a snapshot in which task 1 needs the node of task 9."""
    level = settings.pop("level", NORMAL)
    return snap(nodes(1), running(9, "n00", level, since=since, **settings), queued(1, user="u"))


def parts(*more: Any, guaranteed: int = 2, **settings: Any) -> Snapshot:
    """Return a snapshot in which users u have n00 and n01; task 1 belongs to another user."""
    runs = [running(i, f"n0{i - 8}", since=5000.0, user="u") for i in (8, 9)]
    return snap(nodes(4), share("u", guaranteed), *runs, queued(1, user="v"), *more, **settings)


def shares(limit: int | None, *more: Any) -> Snapshot:
    return snap(nodes(4), share("u v", limit=limit), running(9, "n00", user="u"), *more)


PARTS = [
    case(snap(nodes(1)), id="nothing to do"),
    case(snap(nodes(1), queued(1)), start(1, "n00"), id="a start"),
    case(snap(nodes(2), queued(1)), start(1, "n00"), blocked(1), messages="task 1 gets 2 decisions", id="told twice"),
    case(snap(nodes(1), running(1, "n00")), blocked(1), messages="task 1 is RUNNING, and starts or waits",
         id="a run waits"),
    case(snap(nodes(1)), blocked(7), messages="task 7 is not in the snapshot; task 7 is None, and starts or waits",
         id="nobody waits"),
    case(
        snap(nodes(1), leaving(9, "n00"), queued(1, user="u")), suspend(9, 1), promised(1),
        messages="task 9 is LEAVING, and is suspended", id="who leaves is suspended",
    ),
    # gangs
    case(snap(nodes(2), queued(1, 2)), start(1, "n00"), messages="task 1 of 2 nodes starts on 1", id="half a gang"),
    case(snap(nodes(2), queued(1)), start(1, "n00 n01"), messages="task 1 of 1 nodes starts on 2",
         id="more than asked for"),
    case(snap(node("a", up=False), queued(1)), start(1, "a"),
         messages="task 1 starts on node a, which may not take it", id="not ready"),
    case(snap(node("a", group="g"), queued(1)), start(1, "a"),
         messages="task 1 starts on node a, which may not take it", id="of another group"),
    case(snap(node("a", zone="A"), queued(1, zone="B")), start(1, "a"),
         messages="task 1 starts on node a, which may not take it", id="of another zone"),
    case(snap(node("a", zone="A"), queued(1, zone="A")), start(1, "a"), id="of its zone"),
    case(snap(node("a", zone="A"), queued(1)), start(1, "a"), id="of any zone"),
    case(snap(nodes(2), queued(1, assigned_nodes=("n01",))), start(1, "n00"),
         messages="task 1 starts on node n00, which may not take it", id="not the assigned one"),
    case(snap(nodes(2), queued(1, assigned_nodes=("n01",))), start(1, "n01"), id="the assigned one"),
    # booking
    case(snap(nodes(2), running(9, "n00"), queued(1)), start(1, "n00"),
         messages="node n00 is allocated twice, the second time to task 1", id="taken already"),
    case(snap(nodes(1), queued(1), queued(2)), start(1, "n00"), start(2, "n00"),
         messages="node n00 is allocated twice, the second time to task 2", id="given twice"),
    case(snap(nodes(1), running(9, "gone"), queued(1)), start(1, "n00"), id="a node that is gone counts nothing"),
    case(snap(nodes(1, gpus=8), running(9, "n00", gpu=2), queued(1, gpu=2)), start(1, "n00"),
         messages="node n00 is allocated twice, the second time to task 1", id="whole tasks share nothing"),
    case(snap(PACKED, queued(1, gpu=1)), start(1, "gone"),
         messages="task 1 starts on node gone, which may not take it; "
              "node gone is allocated twice, the second time to task 1",
         id="a node that is gone has no room"),
    case(snap(PACKED, nodes(1, gpus=8), running(9, "n00", gpu=4), queued(1, gpu=4)), start(1, "n00"),
         id="two halves"),
    case(snap(PACKED, nodes(1, gpus=8), running(9, "n00", gpu=4), queued(1, gpu=5)), start(1, "n00"),
         messages="node n00 is allocated twice, the second time to task 1", id="two halves and more"),
    case(snap(PACKED, nodes(1, gpus=1), running(9, "n00", gpu=1), queued(1, gpu=1)), start(1, "n00"),
         messages="node n00 is allocated twice, the second time to task 1", id="one GPU for two"),
    case(snap(PACKED, nodes(1, gpus=8), running(9, "n00", cpu=4), queued(1, memory=4)), start(1, "n00"),
         id="parts without GPUs"),
    case(snap(PACKED, nodes(1, gpus=8), running(9, "n00", gpu=1), queued(1)), start(1, "n00"),
         messages="node n00 is allocated twice, the second time to task 1", id="a whole node beside a part"),
    # quota
    case(snap(nodes(3), quota("u", HIGH, 1), quota("u", HIGH, 2), running(9, "n00", HIGH, user="u"),
              queued(1, 2, user="u")),
         start(1, "n01 n02", HIGH), messages="task 1: u holds 3 at HIGH", id="more than its rows allow"),
    case(snap(nodes(3), quota("u", HIGH, 3), quota("u", HIGH, 2), running(9, "n00", HIGH, user="u"),
              queued(1, 2, user="u")), start(1, "n01 n02", HIGH), id="as much as a row allows"),
    case(snap(nodes(3), quota("u", HIGH, 2), running(9, "n00", user="u"), queued(1, 2, user="u")),
         start(1, "n01 n02", HIGH), id="at another level"),
    case(snap(nodes(3), quota("u", AUTO, 2), running(9, "n00", user="u"), queued(1, 2, user="u")),
         start(1, "n01 n02", HIGH), messages="task 1: u holds 3 at AUTO", id="more in total"),
    case(snap(nodes(1), quota("u", HIGH, 0), queued(1, user="u")), start(1, "n00", HIGH),
         messages="task 1: u holds 1 at HIGH", id="a row of nothing"),
    case(snap(nodes(3), quota("v", HIGH, 0), quota("u", HIGH, 0, "g"), queued(1, user="u")), start(1, "n01", HIGH),
         id="rows of others"),
    case(snap(PACKED, nodes(3, gpus=8), quota("u", AUTO, 1), running(9, "n00", user="u", gpu=4), queued(1, user="u")),
         start(1, "n01"), id="parts count elsewhere"),
    case(snap(PACKED, nodes(3, gpus=8), quota("u", AUTO, 0), running(9, "n00", user="u"), queued(1, user="u", gpu=1)),
         start(1, "n01"), id="a part above a whole row"),
    # limits of shares
    case(shares(2, queued(1, 2, user="v")), start(1, "n01 n02"), messages="task 1: user group u v holds 3 of 2",
         id="above the limit together"),
    case(shares(3, queued(1, 2, user="v")), start(1, "n01 n02"), id="at the limit"),
    case(shares(2, queued(1, user="w"), queued(2, user="v")), start(1, "n01"), start(2, "n02"),
         id="at the limit, and one of others starts"),
    case(shares(None, queued(1, 2, user="v")), start(1, "n01 n02"), id="without a limit"),
    case(shares(0, queued(1, user="w")), start(1, "n01"), id="not a member"),
    case(shares(1, queued(1, user="v", group="g"), node("a", group="g")), start(1, "a"), id="in another group"),
    case(snap(PACKED, nodes(2, gpus=2), share("u v", limit=0), queued(1, user="v", gpu=1)), start(1, "n01"),
         id="a part above a limit"),
    # guaranteed parts
    case(parts(queued(2, user="u")), suspend(9, 1, higher=False), promised(1), promised(2),
         id="its own task is promised nodes that others leave"),
    case(parts(), suspend(9, 1, higher=False), promised(1), messages="user group u is left 1 nodes of 2 for equals",
         id="less than is guaranteed"),
    case(parts(guaranteed=1), suspend(9, 1, higher=False), promised(1), id="what is guaranteed is left"),
    case(parts(), suspend(9, 1), promised(1), id="for a higher level"),
    case(parts(queued(2, user="u")), suspend(9, 1, higher=False), promised(1), start(2, "n02"),
         id="it starts another one"),
    case(parts(queued(2, user="u")), suspend(9, 1, higher=False), promised(1), blocked(2),
         messages="user group u is left 1 nodes of 2 for equals", id="another one waits"),
    case(parts(leaving(7, "n02", user="u")), suspend(9, 1, higher=False), promised(1),
         messages="user group u is left 1 nodes of 2 for equals", id="a leaving one is lost already"),
    case(parts(queued(2, user="u", priority=HIGH)), suspend(9, 1, higher=False), suspend(8, 2), promised(1),
         promised(2), id="lost to its own as well: no judgement"),
    case(parts(queued(2, user="u"), running(7, "n02", since=5000.0, user="x")), suspend(9, 1, higher=False),
         suspend(7, 2, higher=False), promised(1), promised(2), id="it is promised another one"),
    # suspensions
    case(taken(), suspend(9, 1), messages="task 9 leaves for task 1, which is promised nothing", id="for nothing"),
    case(taken(), suspend(9, 1), blocked(1), messages="task 9 leaves for task 1, which is promised nothing",
         id="for who still waits"),
    case(taken(), suspend(9, 1, higher=False), promised(1), id="for an equal after its minimum"),
    case(taken(since=MINIMUM - 1), suspend(9, 1, higher=False), promised(1),
         messages="task 9 leaves for an equal before its minimum", id="for an equal too soon"),
    case(taken(since=0.0), suspend(9, 1), promised(1, HIGH), id="for a higher level at once"),
    case(taken(run_started_at=None), suspend(9, 1, higher=False), promised(1),
         messages="task 9 leaves for an equal before its minimum", id="it has just begun"),
    case(taken(level=HIGH), suspend(9, 1), promised(1), messages="task 9 at HIGH leaves for one at NORMAL",
         id="for a lower level"),
    case(taken(user="u"), suspend(9, 1), promised(1), messages="task 9 leaves for task 1, an equal of its own user",
         id="for an equal of its user"),
    case(taken(user="u", level=LOW), suspend(9, 1), promised(1), id="for a higher one of its user"),
    # inversion
    case(snap(nodes(2), queued(1, 1, HIGH), queued(2)), start(2, "n00"), blocked(1, HIGH),
         messages="task 2 at NORMAL starts before task 1", id="a lower level first"),
    case(snap(nodes(2), queued(1), queued(2)), start(2, "n00"), blocked(1), id="an equal first"),
    case(snap(nodes(2), queued(1, 2, HIGH), queued(2)), start(2, "n00"), blocked(1, HIGH),
         id="its node is not enough"),
    case(snap(nodes(2), queued(1, 1, HIGH, zone="A"), queued(2)), start(2, "n00"), blocked(1, HIGH),
         id="its node does not suit"),
    case(snap(nodes(2), queued(1, 1, HIGH), queued(2)), start(2, "n00"),
         Wait(1, WaitReason.OUT_OF_QUOTA, "", 1, HIGH), id="it lacks quota"),
    case(snap(nodes(2), queued(1, 1, HIGH), queued(2)), start(2, "n00"), blocked(1, HIGH, place=0),
         id="it has no place"),
    case(snap(PACKED, nodes(2, gpus=8), queued(1, 1, HIGH), queued(2, gpu=1)), start(2, "n00"), blocked(1, HIGH),
         id="a part takes no node"),
    case(snap(nodes(2), queued(1, 1, HIGH), queued(2, created_at=LONG)), start(2, "n00"), blocked(1, HIGH),
         lifted_to=HIGH, id="it was lifted"),
    case(snap(nodes(2), queued(1, 1, HIGH), queued(2, created_at=LONG + 1)), start(2, "n00"), blocked(1, HIGH),
         lifted_to=HIGH, messages="task 2 at NORMAL starts before task 1", id="not yet lifted"),
    case(snap(nodes(2), queued(1, 1, NORMAL), queued(2, 1, HIGH, created_at=LONG)), start(2, "n00", HIGH),
         blocked(1), lifted_to=LOW, id="lifted from above"),
    case(snap(nodes(2), queued(1, 1, LOW), queued(2, created_at=LONG, spot=True)), start(2, "n00"),
         blocked(1, LOW), messages="task 2 at NORMAL starts before task 1", id="spot is below all"),
    case(snap(nodes(2), queued(3, 1, HIGH, user="u"), queued(1, 1, HIGH, user="u"), queued(2)), blocked(3, HIGH),
         start(2, "n00"), blocked(1, HIGH), messages="task 2 at NORMAL starts before task 3",
         id="kept from own ones only"),
    case(snap(nodes(2), queued(3, 2, HIGH), queued(1, 1, HIGH), queued(2)), blocked(3, HIGH), start(2, "n00"),
         blocked(1, HIGH), time_slices=False, id="kept from all without slices"),
    case(snap(nodes(2), queued(3, 2, HIGH), queued(1, 1, HIGH), queued(2)), blocked(3, HIGH), start(2, "n00"),
         blocked(1, HIGH), messages="task 2 at NORMAL starts before task 1", id="with slices nothing is kept"),
    case(snap(nodes(2), queued(3, 2, HIGH, created_at=LONG), queued(1, 1, HIGH), queued(2)), blocked(3, HIGH),
         start(2, "n00"), blocked(1, HIGH), id="but for who was lifted"),
]  # fmt: skip


@pytest.mark.parametrize(("snapshot", "decisions", "policy", "messages"), PARTS)
def test_violations_of_a_plan_are_reported(
    snapshot: Snapshot, decisions: tuple[Decision, ...], policy: Policy, messages: list[str]
) -> None:
    found = [broken.message for broken in violations(snapshot, Plan(0, decisions), policy)]
    assert "; ".join(found) == "; ".join(messages)

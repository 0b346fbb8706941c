"""Counts of what blocks a task, and the reasons why other tasks come first."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, ShareRow, Snapshot
from hai_backend.scheduler import Policy
from hai_backend.scheduler.explain.blockers import Blockers, NodeNumbers, QuotaUse, find_blockers
from hai_backend.scheduler.explain.trial_pass import run_pass
from hai_backend.scheduler.policy.group_policy import format_settings
from hai_backend.scheduler.testing import (
    NOW,
    leaving,
    nodes,
    queued,
    quota,
    running,
    share,
    snap,
    starting,
)

LOW, NORMAL, HIGH, AUTO = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.AUTO
OLD = {"since": 90_000.0}
HIT = Suspension(NOW - 60, 5, higher=True)


def found(snapshot: Snapshot, ahead: tuple[int, ...] = ()) -> Blockers:
    cycle = run_pass(snapshot, 1, Policy(overhead_share=0.01)).cycle
    assert cycle is not None
    return find_blockers(cycle, 1, ahead)


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        pytest.param(
            snap(nodes(5), running(8, "n00", LOW), running(9, "n01", HIGH), leaving(7, "n02"),
                 starting(6, "n03"), queued(1, 5)),
            NodeNumbers(free=1, leaving=1, takeable=1, firm=2), id="each kind",
        ),
        pytest.param(
            snap(nodes(2), running(9, "n00 n01", LOW, suspensions=(HIT,)), queued(1, 2)),
            NodeNumbers(protected=2, protected_until=NOW + 6440, protected_runs=(9,)), id="protected from all",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", HIGH, suspensions=(HIT,)), queued(1)),
            NodeNumbers(firm=1), id="protection of a higher run is none of its business",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", created_at=NOW, run_seconds=9e5), queued(1, created_at=NOW - 9e4)),
            NodeNumbers(protected=1, protected_until=NOW + 840, protected_runs=(9,)), id="of an equal",
        ),
        pytest.param(
            snap(nodes(3), running(8, "n00", LOW, since=6500, suspensions=(HIT,)), running(9, "n01", HIGH),
                 queued(1, 3)),
            NodeNumbers(free=1, takeable=1, firm=1), id="protection that ends just now",
        ),
        pytest.param(
            snap(nodes(3), running(7, "n00", LOW, since=10, suspensions=(HIT,)), running(8, "n01", LOW, since=20,
                 suspensions=(HIT,)), running(9, "n02", LOW, since=20, suspensions=(HIT,)), queued(1, 3)),
            NodeNumbers(protected=3, protected_until=NOW + 6480, protected_runs=(8, 9, 7)), id="the first to end first",
        ),
        pytest.param(
            snap(nodes(1), running(8, "n00", LOW, since=10, suspensions=(HIT,)), leaving(9, "n00"), queued(1)),
            NodeNumbers(protected=1, protected_until=NOW + 6490, protected_runs=(8,)), id="the last on a node counts",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", LOW, since=9000),
                 queued(1, suspensions=(Suspension(NOW - 100, 9, higher=True),))),
            NodeNumbers(protected=1, protected_until=NOW + 6400, protected_runs=(9,),
                        protected_why="the task was suspended for this run, and may not suspend it for one slice"),
            id="left alone by who had to leave for it",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", created_at=NOW, since=1000, run_seconds=9e5, lost_seconds=5000.0),
                 queued(1, created_at=NOW - 9e4)),
            NodeNumbers(protected=1, protected_until=NOW + 4000, protected_runs=(9,),
                        protected_why="its earlier runs lost their work"),
            id="for lost work",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", LOW, since=60, unsaved_suspensions=2), queued(1, 1, HIGH)),
            NodeNumbers(protected=1, protected_until=NOW + 840, protected_runs=(9,),
                        protected_why="its last runs were suspended before they saved"),
            id="suspended twice without progress",
        ),
    ],
)  # fmt: skip
def test_nodes_are_counted_by_what_occupies_them(snapshot: Snapshot, expected: NodeNumbers) -> None:
    assert found(snapshot).nodes == expected


def test_quota_and_reservation() -> None:
    rows = [quota("u", NORMAL, 3), quota("u", AUTO, 4)]
    runs = [running(8, "n00", user="u"), running(9, "n01 n02", HIGH, user="u")]
    tasks = [queued(1, 3, user="u"), queued(2, 2, created_at=NOW - 5000)]
    said = found(snap(nodes(4), *rows, *runs, *tasks))
    assert said.quota == (QuotaUse(NORMAL, 3, 1, 4), QuotaUse(AUTO, 4, 3, 6))
    assert said.reserved_for == 2


def test_nothing_is_reserved_if_no_task_lacks_nodes() -> None:
    assert found(snap(nodes(2), quota("u1", NORMAL, 0), queued(1))).reserved_for == 0


def test_a_deferred_task_gets_no_forecast() -> None:
    assert found(snap(nodes(1), queued(1, held=True))) == Blockers()
    assert (Blockers().nodes.protected_until, Blockers().reserved_for) == (inf, 0)


BUSY = [nodes(2), running(9, "n00 n01", Priority.EXTREME_HIGH)]
SHORT = tuple(Ending(queued(50 + i, user="s", name="s"), 60.0) for i in range(30))
LONG = tuple(Ending(queued(90 + i, user="u1", name="l"), 1e6) for i in range(30))


@pytest.mark.parametrize(
    ("other", "own", "settings", "words"),
    [
        pytest.param(queued(2, 1, HIGH), {}, {}, "higher priority: HIGH", id="level"),
        pytest.param(queued(2, 1, LOW, created_at=NOW - 1e5), {"priority": LOW}, {},
                     "higher priority: NORMAL because it has waited too long", id="lifted above"),
        pytest.param(queued(2, created_at=NOW - 1e5), {}, {},
                     "comes first within NORMAL because it has waited too long", id="lifted"),
        pytest.param(queued(2, user="u1", custom_rank=-1.0), {}, {}, "moved ahead by its owner", id="by hand"),
        pytest.param(queued(2, user="s", name="s"), {"name": "l"}, {},
                     "ranks higher within NORMAL: tasks like it are more likely to end soon",
                     id="learned"),
        pytest.param(queued(2), {"node_count": 2}, {}, "ranks higher within NORMAL: it requests fewer nodes",
                     id="size"),
        pytest.param(queued(2, user="s", name="s"), {"node_count": 2, "name": "l"}, {},
                     "ranks higher within NORMAL: tasks like it are more likely to end soon",
                     id="smaller, and better for each node"),
        pytest.param(queued(2), {"run_seconds": 5000.0}, {"ranking": "attained"},
                     "ranks higher within NORMAL: it has used fewer node-seconds so far", id="attained"),
        pytest.param(queued(2, created_at=NOW - 8000), {}, {"ranking": "submitted"},
                     "ranks higher within NORMAL: its user has no nodes in this group, so it is this user's turn",
                     id="turn"),
        pytest.param(queued(2, created_at=NOW - 6500), {}, {"ranking": "submitted"},
                     "ranks higher within NORMAL: its user has no nodes in this group, so it is this user's turn",
                     id="turn just now"),
        pytest.param(queued(2, created_at=NOW - 2000), {}, {}, "submitted earlier", id="earlier"),
        pytest.param(queued(2, user="u1", created_at=NOW - 2000), {}, {}, "submitted earlier", id="an own one"),
        pytest.param(queued(2, created_at=NOW - 2000, waiting_since=NOW - 1500), {}, {},
                     "has waited longer", id="wait"),
    ],
)  # fmt: skip
def test_the_reason_why_a_task_comes_first_is_stated(
    other: SchedTask, own: dict[str, object], settings: dict[str, object], words: str
) -> None:
    group = Group("default", policy=format_settings(settings))
    state = snap(*BUSY, queued(1, **own), other, group, endings=SHORT + LONG)  # type: ignore[arg-type]
    assert found(replace(state), ahead=(2,)).rules == {2: words}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (share("s", 1), "its user group uses less than its guaranteed nodes"),
        (share("s", weight=1), "its user group uses less than its part"),
    ],
)
def test_parts_of_user_groups_come_first(row: ShareRow, words: str) -> None:
    state = snap(*BUSY, queued(1), queued(2, user="s"), row)
    assert found(state, ahead=(2, 99)).rules == {2: f"comes first within NORMAL: {words}"}


@pytest.mark.parametrize("row", [share("u1 s", 9), share("u1 s", weight=1), share("x", 1)])
def test_with_equal_shares_the_wait_decides(row: ShareRow) -> None:
    state = snap(*BUSY, queued(1), queued(2, user="s", created_at=NOW - 2000), row)
    assert found(state, ahead=(2,)).rules == {2: "submitted earlier"}

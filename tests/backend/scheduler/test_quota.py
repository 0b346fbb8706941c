"""Units of quota, limits of users, levels for AUTO, and tiers of shares."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow
from hai_backend.scheduler.capacity.node_info import Allocation, Occupancy
from hai_backend.scheduler.capacity.requests import UNIT, Request, units_of
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.queue import QueueEntry
from hai_backend.scheduler.queue.user_order import auto_levels
from hai_backend.scheduler.quota import Limit, Quotas, allows, fits
from hai_backend.scheduler.shares import Shares, Tier
from hai_backend.scheduler.testing import queued, quota, share

LOW, NORMAL, HIGH, AUTO = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.AUTO


def entry_of(task: int, count: int, user: str = "u", **settings: Any) -> QueueEntry:
    request = Request(count, units=count * UNIT)
    facts = queued(task, count, AUTO, user=user, **settings)
    return QueueEntry(facts, request, NORMAL, NORMAL, 1.0, inf, share=user)


def allocation_of(user: str, count: int) -> Allocation:
    return Allocation(queued(9, user=user), Occupancy.ALLOCATED, units=count * UNIT)


@pytest.mark.parametrize(
    ("count", "requested", "largest", "expected"),
    [
        pytest.param(3, None, (8, 8, 8), 3 * UNIT, id="whole nodes"),
        pytest.param(2, (2, 0, 0), (8, 8, 8), UNIT // 2, id="GPUs"),
        pytest.param(2, (2, 4, 0), (8, 8, 8), UNIT, id="the scarcest"),
        pytest.param(2, (1, 1, 6), (8, 8, 8), 3 * UNIT // 2, id="memory"),
        pytest.param(1, (9, 0, 0), (8, 8, 8), UNIT, id="no more than a node"),
        pytest.param(2, (0, 1, 0), (0, 10**18, 1), 2, id="never nothing"),
        pytest.param(1, (0, 1, 0), (0, 1, 0), UNIT, id="amounts that no node has weigh nothing"),
    ],
)
def test_units_of_quota(count: int, requested: Any, largest: Any, expected: int) -> None:
    assert units_of(count, requested, largest) == expected


@pytest.mark.parametrize(
    ("rows", "default", "level", "expected"),
    [
        pytest.param([], None, NORMAL, [], id="unlimited"),
        pytest.param([], 2, NORMAL, [(NORMAL, 2)], id="the default"),
        pytest.param([], 0, NORMAL, [(NORMAL, 0)], id="a default of nothing"),
        pytest.param([quota("u", NORMAL, 1), quota("u", NORMAL, 3)], 2, NORMAL, [(NORMAL, 3)], id="the larger row"),
        pytest.param([quota("u", NORMAL, 0)], 2, NORMAL, [(NORMAL, 0)], id="a row of nothing"),
        pytest.param([quota("u", HIGH, 1)], None, NORMAL, [], id="a row of another level"),
        pytest.param([quota("u", HIGH, 1)], 2, NORMAL, [(NORMAL, 2)], id="and the default"),
        pytest.param([quota("u", AUTO, 4)], None, NORMAL, [(AUTO, 4)], id="in total"),
        pytest.param([quota("u", AUTO, 4), quota("u", LOW, 1)], 2, LOW, [(LOW, 1), (AUTO, 4)], id="both"),
        pytest.param([quota("v", LOW, 1)], None, LOW, [], id="of another user"),
    ],
)  # fmt: skip
def test_limits_of_a_user(rows: Any, default: Any, level: Any, expected: Any) -> None:
    quotas = Quotas(rows, Policy(default_quota=default))
    quotas.add_used("u", level, 5)
    quotas.add_used("u", level, -2)
    quotas.add_used("u", TOP, 4)
    held = {level: 3, AUTO: 7}
    assert quotas.limits("u", level) == [Limit(r, n * UNIT, held[r]) for r, n in expected]


TOP = Priority.EXTREME_HIGH


def test_uses_any() -> None:
    quotas = Quotas([], Policy())
    assert not quotas.uses_any("u")
    quotas.add_used("u", LOW, 1)
    assert quotas.uses_any("u")
    quotas.add_used("u", LOW, -1)
    assert not quotas.uses_any("u")


def test_all_limits_must_allow_the_units() -> None:
    tight, wide = Limit(LOW, 2, 1), Limit(AUTO, 9, 0)
    assert (tight.available, wide.available) == (1, 9)
    assert (fits([tight, wide], 1), fits([wide, tight], 2)) == (True, False)
    assert (allows([tight, wide], 2), allows([wide, tight], 3)) == (True, False)
    assert fits([], 99)


@pytest.mark.parametrize(
    ("rows", "tasks", "expected"),
    [
        pytest.param([quota("u", HIGH, 1)], [entry_of(1, 1), entry_of(2, 1)], {1: HIGH, 2: NORMAL}, id="in order"),
        pytest.param([quota("u", HIGH, 1)], [entry_of(1, 1), entry_of(2, 1, custom_rank=-1.0)], {1: NORMAL, 2: HIGH},
                     id="in the order set by hand"),
        pytest.param([quota("u", HIGH, 1)], [entry_of(1, 1, created_at=2.0), entry_of(2, 1, created_at=1.0)],
                     {1: NORMAL, 2: HIGH}, id="in the order of submission"),
        pytest.param([quota("u", HIGH, 3)], [entry_of(1, 1), entry_of(2, 1), entry_of(3, 2), entry_of(4, 1)],
                     {1: HIGH, 2: HIGH, 3: NORMAL, 4: HIGH}, id="who fits in takes the rest"),
        pytest.param([quota("u", HIGH, 2), quota("u", LOW, 9), quota("u", NORMAL, 2)], [entry_of(1, 3), entry_of(2, 2)],
                     {1: LOW, 2: HIGH}, id="who can never have a level claims nothing of it"),
        pytest.param([quota("u", HIGH, 2), quota("u", NORMAL, 3)], [entry_of(1, 9), entry_of(2, 2)],
                     {1: NORMAL, 2: HIGH}, id="who can never start claims nothing"),
        pytest.param([quota("u", HIGH, 5), quota("u", AUTO, 3)], [entry_of(1, 2), entry_of(2, 2), entry_of(3, 1)],
                     {1: HIGH, 2: NORMAL, 3: NORMAL}, id="the total is claimed as well"),
        pytest.param([quota("u", AUTO, 3)], [entry_of(1, 2)], {}, id="one level is no choice"),
    ],
)  # fmt: skip
def test_auto_is_resolved_to_the_highest_level_with_room(
    rows: Any, tasks: list[QueueEntry], expected: dict[int, Priority]
) -> None:
    found = auto_levels("u", tasks, Quotas(rows, Policy()))
    assert {entry.task.id: level for entry, level in found} == expected


def one_by_one(tasks: list[QueueEntry], quotas: Quotas) -> dict[int, Priority]:
    """Resolve AUTO for each task alone."""
    levels, claims, found = quotas.auto_levels("u"), dict.fromkeys(Priority, 0), {}
    for entry in sorted(tasks, key=lambda entry: (entry.task.custom_rank, entry.task.id)):
        units = entry.request.units
        possible = [level for level in levels if allows(quotas.limits("u", level), units)]
        free = [
            level
            for level in possible
            if all(
                limit.available >= units + claims[limit.row] for limit in quotas.limits("u", level)
            )
        ]
        level = [*free, *reversed(possible or levels)][0]
        for row in (level, AUTO) if possible else ():
            claims[row] += units
        found[entry.task.id] = level
    return found


auto_rows = st.builds(
    quota, st.just("u"), st.sampled_from([HIGH, NORMAL, LOW, AUTO]), st.integers(0, 9)
)
auto_tasks = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0.0, 1.0])), max_size=12)


@given(st.lists(auto_rows, min_size=1, max_size=5), auto_tasks, st.integers(0, 4))
def test_auto_levels_equal_those_computed_one_by_one(
    rows: list[QuotaRow], asked: list[tuple[int, float]], held: int
) -> None:
    quotas = Quotas([quota("u", HIGH, 3), *rows], Policy())
    quotas.add_used("u", NORMAL, held * UNIT)
    tasks = [entry_of(i, count, custom_rank=rank) for i, (count, rank) in enumerate(asked, start=1)]
    found = {entry.task.id: level for entry, level in auto_levels("u", tasks, quotas)}
    assert found == one_by_one(tasks, quotas)


class Counting(Quotas):
    """Counts how often the limits are computed."""

    asked = 0

    def limits(self, user: str, level: Priority) -> list[Limit]:
        self.asked += 1
        return super().limits(user, level)


def test_limits_are_read_once_for_all_auto_tasks_of_a_user() -> None:
    quotas = Counting([quota("u", HIGH, 3), quota("u", LOW, 9)], Policy())
    assert len([*auto_levels("u", [entry_of(i, 1 + i % 3) for i in range(1, 50)], quotas)]) == 49
    assert quotas.asked <= 3


def divided(capacity: int, *rows: Any) -> Shares:
    shares = Shares(rows)
    shares.divide(capacity * UNIT)
    return shares


@pytest.mark.parametrize(
    ("rows", "retained", "count", "expected"),
    [
        pytest.param([share("u", 2)], 0, 2, Tier.GUARANTEED, id="just guaranteed"),
        pytest.param([share("u", 2)], 1, 2, Tier.BEYOND, id="more than guaranteed"),
        pytest.param([share("u", 2, weight=1)], 0, 10, Tier.WEIGHTED, id="all weights: all nodes"),
        pytest.param([share("u", 2, weight=1)], 1, 10, Tier.BEYOND, id="more than there is"),
        pytest.param([share("u", 2, weight=1), share("v", 4, weight=3)], 0, 3, Tier.WEIGHTED, id="a part of the rest"),
        pytest.param([share("u", 2, weight=1), share("v", 4, weight=3)], 0, 4, Tier.BEYOND, id="more than its part"),
        pytest.param([share("u", 2, weight=1), share("v", 20)], 0, 3, Tier.BEYOND, id="guarantees beyond all nodes"),
    ],
)  # fmt: skip
def test_the_tier_of_a_task(rows: Any, retained: int, count: int, expected: Tier) -> None:
    shares = divided(10, *rows)
    shares.add_retained("u", retained * UNIT)
    assert shares.tier(entry_of(1, count)) is expected


@pytest.mark.parametrize(
    ("retained", "count", "expected"),
    [(2, 1, Tier.GUARANTEED), (3, 1, Tier.WEIGHTED), (6, 1, Tier.WEIGHTED), (7, 1, Tier.BEYOND), (7, 2, Tier.WEIGHTED)],
)  # fmt: skip
def test_the_tier_of_a_run(retained: int, count: int, expected: Tier) -> None:
    """Guaranteed are 2, and 4 of the other 8 come by weight."""
    shares = divided(10, share("u", 2, weight=1), share("v", weight=1))
    shares.add_retained("u", retained * UNIT)
    assert shares.tier_of(allocation_of("u", count)) is expected


def test_a_user_without_a_share_has_tier_beyond() -> None:
    shares = divided(10, share("u", 2, weight=1))
    assert (shares.share_of("u"), shares.share_of("x")) == ("u", "")
    outsider = entry_of(1, 1, "x")
    outsider.share = ""
    assert shares.tier(outsider) is Tier.BEYOND
    assert (
        shares.tier_of(allocation_of("x", 1)) is Tier.GUARANTEED
    )  # the group retains nothing without the run
    shares.add_retained("x", UNIT)
    assert shares.tier_of(allocation_of("x", 1)) is Tier.BEYOND
    assert shares.different_groups(outsider, allocation_of("u", 1))
    assert not shares.different_groups(outsider, allocation_of("y", 1))
    assert not Shares().different_groups(outsider, allocation_of("u", 1))


def test_the_limit_counts_what_is_held() -> None:
    shares = divided(10, share("u v", limit=3))
    shares.add_used("u", UNIT)
    shares.add_used("x", UNIT)
    task = entry_of(1, 2, "v")
    task.share = "u v"
    assert (shares.exceeded(task), shares.used("u v")) == (None, UNIT)
    shares.add_used("v", 1)
    assert shares.exceeded(task) == share("u v", limit=3)
    assert divided(10, share("u")).exceeded(entry_of(1, 99)) is None


def test_trial_releases_are_undone() -> None:
    shares = divided(10, share("u", 2))
    shares.add_retained("u", 3 * UNIT)
    run = allocation_of("u", 1)
    with shares.trial() as leave:
        leave(run)
        assert shares.tier_of(run) is Tier.GUARANTEED
    assert shares.tier_of(run) is Tier.BEYOND

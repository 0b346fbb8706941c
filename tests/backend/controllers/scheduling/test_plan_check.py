"""Invariant checks in the live server: which passes are checked, and how violations are reported."""

from __future__ import annotations

from collections import Counter

import pytest
from structlog.testing import capture_logs

from hai_backend.controllers.scheduling.loop import SchedulingLoop
from hai_backend.controllers.scheduling.plan_check import PlanCheck
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan, Start, Wait, WaitReason
from hai_backend.metrics.prometheus import Metrics
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.invariants import RULES
from hai_backend.scheduler.testing import NOW, nodes, queued, running, snap
from tests.support.builders import a_spec
from tests.support.controller_harness import ControllerHarness, NoAccounts

STARTS = Plan(0, (Start(1, ("n00",), Priority.NORMAL, ""),))


class Time:
    """A clock that advances by `step` with each call."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def counted(metrics: Metrics, name: str) -> Counter[str]:
    """Return the samples of a metric that are not 0, by rule."""
    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    return +Counter({s.labels.get("rule", ""): int(s.value) for s in samples if s.name == name})


@pytest.mark.parametrize(
    ("plan", "due"),
    [
        pytest.param(Plan(0, ()), False, id="nothing decided"),
        pytest.param(Plan(0, (Wait(1, WaitReason.HELD, ""),)), False, id="nothing changes"),
        pytest.param(STARTS, True, id="a start"),
    ],
)
def test_passes_that_change_something_are_checked(plan: Plan, due: bool) -> None:
    assert PlanCheck(Policy(), Metrics(), Time()).due(plan) is due


@pytest.mark.parametrize(("seconds", "rest"), [(0.001, 60.0), (2.0, 400.0)])
def test_a_check_is_followed_by_a_rest(seconds: float, rest: float) -> None:
    time = Time()
    check = PlanCheck(Policy(), Metrics(), time)
    board = SchedulerCache.from_snapshot(snap(nodes(1), queued(1)), Policy())
    time.step = seconds
    check.check(board, board.decide(NOW))
    time.step = 0.0
    ended = time.now
    time.now = ended + rest * 0.99
    assert not check.due(STARTS)
    time.now = ended + rest * 1.01
    assert check.due(STARTS)


def test_a_good_pass_is_counted_and_breaks_no_rule() -> None:
    metrics = Metrics()
    board = SchedulerCache.from_snapshot(
        snap(nodes(2), running(9, "n00"), queued(1), queued(2)), Policy()
    )
    plan = board.decide(NOW)
    PlanCheck(Policy(), metrics, Time()).check(board, plan)
    assert [type(decision) for decision in plan.decisions] == [Start]
    assert counted(metrics, "hai_scheduler_checks_total").total() == 1
    assert not counted(metrics, "hai_scheduler_violations_total")


def test_a_breach_is_counted_by_its_rule_and_logged() -> None:
    metrics = Metrics()
    board = SchedulerCache.from_snapshot(
        snap(nodes(2), running(9, "n00"), queued(1), queued(2, 3)), Policy()
    )
    board.decide(NOW)
    with capture_logs() as logs:
        PlanCheck(Policy(), metrics, Time()).check(board, STARTS)
    assert counted(metrics, "hai_scheduler_violations_total") == {"one_holder": 1}
    [line] = logs
    assert (line["log_level"], line["rule"]) == ("error", "one_holder")
    assert line["what"] == "node n00 is allocated twice, the second time to task 1"


def test_every_rule_is_shown_before_it_is_broken() -> None:
    """Prometheus detects no increase if a series did not exist before."""
    [metric] = [m for m in Metrics().registry.collect() if m.name == "hai_scheduler_violations"]
    totals = [s.labels["rule"] for s in metric.samples if s.name.endswith("_total")]
    assert totals == list(RULES)


class Failing(PlanCheck):
    def check(self, board: SchedulerCache, plan: Plan) -> None:
        raise RuntimeError("a mistake")


@pytest.mark.parametrize("check", [PlanCheck, Failing])
async def test_the_live_loop_checks_what_it_has_carried_out(
    world: ControllerHarness, check: type[PlanCheck]
) -> None:
    metrics = Metrics()
    loop = SchedulingLoop(
        world.task_manager,
        world.cluster,
        NoAccounts(),
        world.clock,
        Policy(),
        plan_check=check(Policy(), metrics),
    )
    world.scheduling = loop
    task = await world.task_manager.submit("ada", a_spec("one"), "")
    with capture_logs() as logs:
        await loop.once()
    assert world.task_manager.unfinished()[task.id].run is not None
    assert counted(metrics, "hai_scheduler_checks_total").total() == (check is PlanCheck)
    assert [log["log_level"] for log in logs if "check" in log["event"]] == ["error"] * (
        check is Failing
    )

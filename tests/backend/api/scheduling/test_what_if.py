"""Dry runs and explanations, with the real scheduling loop over a store in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.scheduling import what_if
from hai_backend.api.scheduling.what_if import WhatIf
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.scheduling.loop import SchedulingLoop
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow
from hai_backend.domain.spec import ResourceSpec, TaskSpec
from hai_backend.domain.task import Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.scheduler import Policy
from hai_backend.scheduler.explain.dry_run import DryRun, Outcome
from hai_backend.store.memory.store import MemoryStore
from hai_backend.testing import ManualClock
from tests.support.builders import a_spec

ASKED = st.sampled_from([*LEVELS, Priority.AUTO])
USERS = st.sampled_from("uvw")


@dataclass
class People:
    rows: tuple[QuotaRow, ...] = ()

    def quota_rows(self, now: float) -> tuple[QuotaRow, ...]:
        return self.rows

    def inactive_users(self) -> frozenset[str]:
        return frozenset()

    def share_rows(self) -> tuple[ShareRow, ...]:
        return ()


@dataclass
class Rig:
    """The scheduling loop and the parts that it needs."""

    people: People = field(default_factory=People)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        store = MemoryStore()
        self.task_manager = TaskManager(
            store, self.clock, ChangeFeed(), perform=lambda task, what: None, changed=self._changed
        )
        self.cluster = Cluster(store, self.clock, changed=lambda: None)
        self.scheduling = SchedulingLoop(
            self.task_manager, self.cluster, self.people, self.clock, Policy()
        )
        self.what_if = WhatIf(self.scheduling, Policy(), self.clock, search_seconds=inf)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.scheduling.changed(task)

    async def step(self, seconds: float) -> None:
        """Run a pass, let the programs start, advance the clock, and run another pass."""
        await self.scheduling.once()
        for task in list(self.task_manager.unfinished().values()):
            if task.run is not None and not task.run.started_at:
                for rank in task.run.ranks:
                    attached = ev.RankAttached(task.run.number, rank.index, "127.0.0.1", 4000)
                    await self.task_manager.apply(task.id, attached)
        self.clock.advance(seconds)
        await self.scheduling.once()


@st.composite
def submissions(draw: st.DrawFn) -> tuple[str, ResourceSpec, Priority, float]:
    resource = ResourceSpec(
        node_count=draw(st.integers(1, 3)), gpu=draw(st.sampled_from([0, 1, 3]))
    )
    return draw(USERS), resource, draw(ASKED), draw(st.sampled_from([0.0, 100.0, 7000.0]))


def spec_of(number: int, resource: ResourceSpec, level: Priority) -> TaskSpec:
    return replace(a_spec(f"t{number}"), resource=resource, priority=level)


async def truth(data: st.DataObject) -> Outcome:
    row = st.builds(QuotaRow, USERS, st.just("default"), ASKED, st.integers(0, 4))
    rig = Rig(People(tuple(data.draw(st.lists(row, max_size=4)))))
    await rig.cluster.save_group(Group("default", packed=data.draw(st.booleans())))
    bad = data.draw(st.lists(st.booleans(), min_size=1, max_size=5))
    await rig.cluster.update_nodes([Node(f"n{i}", gpus=4, cordoned=b) for i, b in enumerate(bad)])
    await rig.task_manager.load()
    *earlier, new = data.draw(st.lists(submissions(), min_size=1, max_size=7))
    for number, (user, resource, level, seconds) in enumerate(earlier):
        await rig.task_manager.submit(user, spec_of(number, resource, level), "")
        await rig.step(seconds)
    await rig.scheduling.once()
    user, resource, level, _ = new
    spec, now = spec_of(99, resource, level), rig.clock.now()
    before = dict(rig.task_manager.unfinished())
    prediction = await rig.what_if.dry_run(Task(0, user, spec, TaskState.WAITING_INIT, level, now))
    assert rig.task_manager.unfinished() == before
    task = await rig.task_manager.submit(user, spec, "")
    await rig.scheduling.once()
    await compare(rig, prediction.result, task.id)
    return prediction.result.outcome


async def compare(rig: Rig, predicted: DryRun, number: int) -> None:
    tasks = rig.task_manager.unfinished()
    run, wait = tasks[number].run, (await rig.scheduling.waits()).get(number)
    asked = {t.id for t in tasks.values() if t.run and t.run.suspended_for == number}
    assert {v.task for v in predicted.victims if not v.asked} == asked
    assert (predicted.outcome is Outcome.STARTS) == (run is not None)
    if run is not None:
        assert (predicted.nodes, predicted.level) == (
            tuple(r.node for r in run.ranks),
            run.priority,
        )
    else:
        assert (
            predicted.wait == replace(wait, task=predicted.wait.task)
            if wait and predicted.wait
            else False
        )


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_scheduling_loop_does_what_a_dry_run_predicts(data: st.DataObject) -> None:
    asyncio.run(truth(data))


def given_to(platform: Any) -> SchedulingLoop:
    """Make the services use the real scheduling loop."""
    loop = SchedulingLoop(
        platform.task_manager, platform.cluster, platform.directory, platform.clock, Policy()
    )
    platform.scheduling.snapshot = loop.snapshot
    platform.scheduling.waits = loop.waits
    return loop


async def passes(platform: Any, loop: SchedulingLoop) -> None:
    """Run two passes. The second pass sees the decisions of the first."""
    for _ in range(2):
        for task in platform.task_manager.unfinished().values():
            loop.changed(task)
        await loop.once()


async def dry_run(caller: Any, spec: Any) -> pb.DryRunTaskResponse:
    answer: pb.DryRunTaskResponse = await caller.tasks.DryRunTask(pb.DryRunTaskRequest(spec=spec))
    return answer


async def test_dry_run_stores_nothing(platform: Any, make_spec: Any) -> None:
    loop, ada = given_to(platform), await platform.caller("ada")
    await passes(platform, loop)
    answer = await dry_run(ada, make_spec("t", node_count=2))
    assert (answer.outcome, list(answer.nodes), answer.task.id) == ("STARTS", ["n0", "n1"], 0)
    assert answer.message == "would start at once at NORMAL on n0, n1"
    assert platform.task_manager.unfinished() == {}
    await platform.service.stop(0)
    rows = (await platform.store.audit()).rows
    assert [row for row in rows if row.method == "DryRunTask"] == []


async def test_dry_run_names_victims_and_quota(platform: Any, make_spec: Any) -> None:
    loop, ada, bob = given_to(platform), *[await platform.caller(n) for n in ("ada", "bob")]
    await bob.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("his", node_count=4)))
    await passes(platform, loop)
    for rank in range(4):
        await platform.task_manager.apply(1, ev.RankAttached(1, rank, "127.0.0.1", 4000))
    platform.clock.advance(100)
    await passes(platform, loop)
    spec = make_spec("t", node_count=2)
    spec.priority = Priority.HIGH
    answer = await dry_run(ada, spec)
    (victim,) = answer.victims
    assert answer.outcome == "PROMISED"
    assert (victim.id, victim.name, victim.user, victim.asked) == (1, "", "bob", False)
    assert (victim.lost_node_seconds, victim.cost_node_seconds) == (400.0, 660.0)
    assert "start when task 1 has left; suspending costs 660 node-seconds" in answer.message


async def test_dry_run_of_a_waiting_task_has_remedies(platform: Any, make_spec: Any) -> None:
    loop, ada = given_to(platform), await platform.caller("ada")
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("first", node_count=3)))
    await passes(platform, loop)
    answer = await dry_run(ada, make_spec("t", node_count=2))
    assert (answer.outcome, answer.waiting.reason) == ("WAITS", "NOT_ENOUGH_NODES")
    assert answer.message.startswith("would wait at place 1: Needs 2 nodes")
    assert [(f.change, f.count, f.starts) for f in answer.flips] == [
        ("FEWER_NODES", 1, True),
        ("LEVEL", 0, False),
        ("MORE_NODES", 1, True),
    ]


async def test_dry_run_of_a_task_with_predecessors_has_no_queue_place(
    platform: Any, make_spec: Any
) -> None:
    loop, ada = given_to(platform), await platform.caller("ada")
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("first")))
    await passes(platform, loop)
    spec = make_spec("t")
    spec.options.after.add(task=1)
    answer = await dry_run(ada, spec)
    assert (answer.outcome, answer.waiting.reason) == ("WAITS", "AFTER")
    assert answer.message == "would wait: Waits for task 1 to end."


async def test_explanation_names_predecessors_and_required_outcomes(
    platform: Any, make_spec: Any
) -> None:
    loop, ada = given_to(platform), await platform.caller("ada")
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("runs", node_count=4)))
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("waits", node_count=4)))
    await passes(platform, loop)
    spec = make_spec("t")
    spec.options.after.add(task=1)
    spec.options.after.add(task=2, outcome="ended")
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=spec))
    await passes(platform, loop)
    answer = await ada.tasks.ExplainTask(pb.ExplainTaskRequest(id=3))
    assert list(answer.constraints) == [
        "Waits for task 1, 2 to end.",
        "task 1 (runs) has to have succeeded first; it runs",
        "task 2 (waits) has to have ended first; it waits",
    ]
    assert not answer.ahead  # nodes do not matter yet
    assert (answer.waiting.queue_place, list(answer.flips)) == (0, [])
    assert "submit it again without" in answer.suggestions[0]
    await platform.task_manager.suspend(3, "ada", hold=True, delay=0.0)
    await passes(platform, loop)
    answer = await ada.tasks.ExplainTask(pb.ExplainTaskRequest(id=3))
    assert (answer.waiting.reason, answer.constraints[2]) == (
        "HELD",
        "task 2 (waits) has to have ended first; it waits",
    )


async def test_questions_before_the_first_pass_are_unavailable(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    given_to(platform)
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await dry_run(ada, make_spec("t"))
    assert why[0].code is grpc.StatusCode.UNAVAILABLE


async def test_explanation_names_quota_protection_and_preemptions(
    platform: Any, make_spec: Any
) -> None:
    loop, ada = given_to(platform), await platform.caller("ada")
    bob = await platform.caller("bob")
    await bob.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("his", node_count=4)))
    await passes(platform, loop)
    for rank in range(4):
        await platform.task_manager.apply(1, ev.RankAttached(1, rank, "127.0.0.1", 4000))
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("mine", node_count=3)))
    await passes(platform, loop)
    answer = await ada.tasks.ExplainTask(pb.ExplainTaskRequest(id=2))
    assert (
        answer.nodes.total,
        answer.nodes.usable,
        answer.nodes.firm + answer.nodes.protected,
    ) == (4, 4, 4)
    assert answer.reserved_for == 2
    assert {flip.change for flip in answer.flips} >= {"LEVEL", "MORE_NODES"}
    await platform.task_manager.apply(
        1, ev.SuspendAsked("scheduler", "ranks", for_task=2, higher=True)
    )
    told = await bob.tasks.ExplainTask(pb.ExplainTaskRequest(id=1))
    assert [(p.id, p.user, p.higher) for p in told.preemptions] == [(2, "ada", True)]


async def test_questions_behind_too_many_others_are_answered_without_trial_passes(
    platform: Any, make_spec: Any, expect_refusal: Any, monkeypatch: Any
) -> None:
    loop, ada = given_to(platform), await platform.caller("ada")
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("t", node_count=4)))
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("u", node_count=4)))
    await passes(platform, loop)
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Any:
        asked.set()
        await goes_on.wait()
        return await loop.snapshot()

    platform.scheduling.snapshot = slow
    monkeypatch.setattr(what_if, "MAX_WAIT_SECONDS", 0.0)
    why = pb.ExplainTaskRequest(id=2)
    first = ada.tasks.ExplainTask(why)  # starts without an await
    await asked.wait()
    second = await ada.tasks.ExplainTask(why)
    async with expect_refusal() as refused:
        await dry_run(ada, make_spec("v"))
    goes_on.set()
    assert second.waiting.message
    assert second.suggestions[0].startswith("ask again in a moment")
    assert (list(second.flips), second.HasField("nodes")) == ([], False)
    assert refused[0].code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await first).HasField("nodes")


async def test_slow_search_for_remedies_stops_with_those_found() -> None:
    rig = Rig()
    await rig.cluster.update_nodes([Node("n0")])
    for name, count in (("one", 1), ("other", 2)):
        await rig.task_manager.submit("ada", a_spec(name, count), "")
    await rig.step(1.0)
    hasty = WhatIf(rig.scheduling, Policy(), rig.clock, search_seconds=0.0)
    all_of_it, found = await rig.what_if.insight(2, ()), await hasty.insight(2, ())
    assert all_of_it.remedies
    assert found == replace(all_of_it, remedies=())

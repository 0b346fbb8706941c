"""TaskService: submit, list, change, reorder and explain tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.v1 import node_service_pb2 as npb
from hai.v1 import task_pb2
from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.tasks import reordering
from hai_backend.controllers.scheduling.snapshot import sched_task
from hai_backend.domain.errors import Conflict
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.domain.task import Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev
from hai_backend.logs.lines import stamp
from hai_tui.views.nodes import node_status
from tests.support.builders import a_spec, a_task

C = grpc.StatusCode


async def submit(caller: Any, make_spec: Any, *names: str) -> list[int]:
    return [
        (await caller.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec(n)))).id for n in names
    ]


async def test_same_request_id_makes_one_task(platform: Any, make_spec: Any) -> None:
    ada = await platform.caller("ada")
    request = pb.CreateTaskRequest(spec=make_spec("one"), request_id="r1")
    assert (await ada.tasks.CreateTask(request)).id == (await ada.tasks.CreateTask(request)).id


async def test_taken_name_is_refused(platform: Any, make_spec: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    await submit(ada, make_spec, "one", "a*")
    for validate_only in (False, True):
        async with expect_refusal() as why:
            await ada.tasks.CreateTask(
                pb.CreateTaskRequest(spec=make_spec("one"), validate_only=validate_only)
            )
        assert (why[0].code, why[0].reason) == (C.ALREADY_EXISTS, "NAME_TAKEN")


async def test_check_creates_nothing(platform: Any, make_spec: Any) -> None:
    ada = await platform.caller("ada")
    await submit(ada, make_spec, "abc")
    request = pb.CreateTaskRequest(spec=make_spec("a*"), validate_only=True)
    assert (await ada.tasks.CreateTask(request)).id == 0
    assert len(platform.task_manager.unfinished()) == 1


async def test_pages_filters_and_counts(platform: Any, make_spec: Any) -> None:
    ada, bob = await platform.caller("ada"), await platform.caller("bob")
    await submit(ada, make_spec, *(f"t{i}" for i in range(5)))
    await submit(bob, make_spec, "private")
    names, token = [], ""
    while True:
        page = await ada.tasks.ListTasks(
            pb.ListTasksRequest(
                page_size=2, page_token=token, filter="-name:t3", order_by="name", count=True
            )
        )
        assert (page.total, page.tasks[0].HasField("spec")) == (4, False)
        names += [t.name for t in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert names == ["t0", "t1", "t2", "t4"]


async def test_page_that_is_too_large_is_split(platform: Any) -> None:
    for number in range(100):
        spec = a_spec(f"t{number}", tags=("x" * 60_000,))
        await platform.task_manager.submit("ada", spec, "")
    ada = await platform.caller("ada")
    page = await ada.tasks.ListTasks(pb.ListTasksRequest(page_size=100))
    assert 0 < len(page.tasks) < 100
    assert page.next_page_token
    assert page.ByteSize() <= limits.PAGE_BYTES


async def test_priority_changes_at_most_every_ten_seconds(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    ada, olga = await platform.caller("ada"), await platform.caller("olga")
    await submit(ada, make_spec, "one")
    request = pb.UpdateTaskPriorityRequest(id=1, priority=30)
    assert (await ada.tasks.UpdateTaskPriority(request)).priority == 30
    platform.clock.advance(4)
    async with expect_refusal() as why:
        await ada.tasks.UpdateTaskPriority(request)
    assert (why[0].code, "in 6.0 s" in why[0].message) == (C.RESOURCE_EXHAUSTED, True)
    assert why[0].details[1].retry_delay.seconds == 6
    await olga.tasks.UpdateTaskPriority(request)
    platform.clock.advance(10)
    await ada.tasks.UpdateTaskPriority(request)


@pytest.mark.parametrize(
    ("call", "request_", "field"),
    [
        ("UpdateTaskPriority", pb.UpdateTaskPriorityRequest(id=1, priority=7), "priority"),
        ("StopTask", pb.StopTaskRequest(id=1, outcome=task_pb2.TASK_OUTCOME_CANCELED), "outcome"),
        ("SuspendTask", pb.SuspendTaskRequest(id=1, delay_seconds=-1), "delay_seconds"),
        ("SuspendTask", pb.SuspendTaskRequest(id=1, delay_seconds=float("nan")), "delay_seconds"),
        ("TagTask", pb.TagTaskRequest(id=1, add=["_x"]), "add[0]"),
        ("TagTask", pb.TagTaskRequest(id=1, remove=["_x"]), "remove[0]"),
        ("TagTask", pb.TagTaskRequest(id=1, add=[f"t{i}" for i in range(64)]), "add"),
        ("ListTasks", pb.ListTasksRequest(filter="x:y"), "filter"),
        ("ListTasks", pb.ListTasksRequest(order_by="x"), "order_by"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_invalid_changes_are_refused(
    platform: Any, make_spec: Any, expect_refusal: Any, call: str, request_: Any, field: str
) -> None:
    ada, spec = await platform.caller("ada"), make_spec("one")
    spec.options.tags.append("mine")
    await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=spec))
    async with expect_refusal() as why:
        await getattr(ada.tasks, call)(request_)
    assert (why[0].code, why[0].violations[0][0]) == (C.INVALID_ARGUMENT, field)


async def test_tags_and_star(platform: Any, make_spec: Any) -> None:
    ada = await platform.caller("ada")
    await submit(ada, make_spec, "one")
    await ada.tasks.TagTask(pb.TagTaskRequest(id=1, add=["a", "b"]))
    task = await ada.tasks.TagTask(pb.TagTaskRequest(id=1, add=["c", "a"], remove=["b", "z"]))
    assert list(task.tags) == ["a", "c"]
    assert (await ada.tasks.StarTask(pb.StarTaskRequest(id=1, starred=True))).starred


async def test_queue_hides_names_of_tasks_of_others(platform: Any, make_spec: Any) -> None:
    ada, bob = await platform.caller("ada"), await platform.caller("bob")
    await submit(ada, make_spec, "mine")
    await submit(bob, make_spec, "his")
    platform.scheduling.known_waits = {
        1: Wait(1, WaitReason.NOT_ENOUGH_NODES, "x", 2),
        2: Wait(2, WaitReason.NOT_ENOUGH_NODES, "secret", 1),
    }
    queue = (await ada.tasks.ListQueue(pb.ListQueueRequest(group="default"))).tasks
    assert [(t.id, t.name, t.user, t.waiting.queue_place) for t in queue] == [
        (2, "", "bob", 1),
        (1, "mine", "ada", 2),
    ]
    assert queue[0].waiting.message == ""
    assert not (await ada.tasks.ListQueue(pb.ListQueueRequest(group="other"))).tasks


async def test_why_a_task_waits(platform: Any, make_spec: Any) -> None:
    ada, bob = await platform.caller("ada"), await platform.caller("bob")
    await submit(bob, make_spec, "his")
    request = pb.CreateTaskRequest(spec=make_spec("mine", node_count=4))
    await ada.tasks.CreateTask(request)
    await platform.cluster.set_cordoned("n3", True, "fan", "olga")
    platform.scheduling.known_waits[2] = Wait(
        2, WaitReason.NOT_ENOUGH_NODES, "needs 4 nodes", 2, Priority.NORMAL, (1,)
    )
    platform.scheduling.current_snapshot = Snapshot(
        1.0,
        tuple(platform.cluster.nodes().values()),
        tuple(map(sched_task, platform.task_manager.unfinished().values())),
    )
    answer = await ada.tasks.ExplainTask(pb.ExplainTaskRequest(id=2))
    assert answer.waiting.reason == "NOT_ENOUGH_NODES"
    assert list(answer.constraints) == [
        "needs 4 nodes",
        "group default has 4 nodes: 3 usable, of which 3 are free; 1 cordoned, 0 not ready",
        "node n3 takes no new work: fan (olga)",
    ]
    assert list(answer.suggestions) == [
        "ask for 2 nodes instead of 4 (starts at once)",
        "2 more free nodes in default (starts at once)",
    ]
    assert [flip.message for flip in answer.flips] == list(answer.suggestions)
    assert [(a.id, a.name, a.user, a.rule) for a in answer.ahead] == [
        (1, "", "bob", "ranks higher within NORMAL: it requests fewer nodes")
    ]


async def test_unusable_nodes_are_counted_the_same_everywhere(
    platform: Any, make_spec: Any
) -> None:
    """One node is cordoned by kubectl, one by an operator and then lost, one is lost, and one is suspect."""
    ada, olga = await platform.caller("ada"), await platform.caller("olga")
    lost = NodeState.NOT_READY
    await olga.nodes.CordonNode(npb.CordonNodeRequest(name="n1", reason="fan"))
    seen = (
        Node("n0", held="cordoned in Kubernetes", lift="kubectl uncordon n0"),
        Node("n1", state=lost, reason="off"),
        Node("n2", state=lost, reason="off"),
        Node("n3", held="not ready: silent"),
    )
    await platform.cluster.update_nodes(seen)
    await submit(ada, make_spec, "mine")
    platform.scheduling.known_waits[1] = Wait(1, WaitReason.NODES_UNUSABLE, "x", 1, Priority.NORMAL)
    platform.scheduling.current_snapshot = Snapshot(
        1.0,
        tuple(platform.cluster.nodes().values()),
        tuple(map(sched_task, platform.task_manager.unfinished().values())),
    )
    answer = await ada.tasks.ExplainTask(pb.ExplainTaskRequest(id=1))
    assert list(answer.constraints)[1:] == [
        "group default has 4 nodes: 0 usable, of which 0 are free; 2 cordoned, 2 not ready",
        "node n0 takes no new work: cordoned in Kubernetes (kubectl uncordon n0)",
        "node n3 takes no new work: not ready: silent",
        "node n1 is not ready: fan (olga)",
        "node n2 is not ready: off",
    ]
    assert (answer.nodes.cordoned, answer.nodes.not_ready) == (2, 2)
    assert answer.suggestions[0] == "operators can bring back cordoned nodes: n0 (starts at once)"
    listed = (await ada.nodes.ListNodes(npb.ListNodesRequest())).nodes
    assert [node_status(node) for node in listed] == [
        "CORDONED",
        "NOT_READY",
        "NOT_READY",
        "CORDONED",
    ]


async def test_remedy_for_a_held_task_is_suggested_once(platform: Any, make_spec: Any) -> None:
    ada = await platform.caller("ada")
    await submit(ada, make_spec, "mine")
    await ada.tasks.SuspendTask(pb.SuspendTaskRequest(id=1, hold=True))
    platform.scheduling.known_waits[1] = Wait(
        1, WaitReason.HELD, "held by its user", 0, Priority.NORMAL
    )
    platform.scheduling.current_snapshot = Snapshot(
        1.0,
        tuple(platform.cluster.nodes().values()),
        tuple(map(sched_task, platform.task_manager.unfinished().values())),
    )
    answer = await ada.tasks.ExplainTask(pb.ExplainTaskRequest(id=1))
    assert list(answer.suggestions) == ["release it: hai resume 1 (starts at once)"]


async def test_invisible_task_is_not_found(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    ada, eve = await platform.caller("ada"), await platform.caller("eve")
    await submit(ada, make_spec, "one")
    messages = []
    for task_id in (1, 99):
        async with expect_refusal() as why:
            await eve.tasks.GetTask(pb.GetTaskRequest(id=task_id))
        messages.append(why[0].message.replace(str(task_id), "N"))
    assert messages[0] == messages[1]


async def test_moving_a_task_before_another(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    ada, bob = await platform.caller("ada"), await platform.caller("bob")
    await submit(ada, make_spec, "a", "b", "c")
    await submit(bob, make_spec, "his")
    await ada.tasks.MoveTask(pb.MoveTaskRequest(id=3, before=2))
    ranked = sorted(
        platform.task_manager.unfinished().values(),
        key=lambda t: (t.user, t.custom_rank, t.created_at, t.id),
    )
    assert [t.spec.name for t in ranked] == ["a", "c", "b", "his"]
    async with expect_refusal() as why:
        await ada.tasks.MoveTask(pb.MoveTaskRequest(id=3, before=4))
    assert why[0].reason == "NOT_COMPARABLE"


async def test_move_continues_when_a_shifted_task_ends(
    platform: Any, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await platform.caller("ada")
    await submit(ada, make_spec, "a", "b", "c")
    set_rank = platform.task_manager.set_rank

    async def late(task: int, by: str, rank: float) -> Task:
        if task == 1:
            await platform.task_manager.stop(1, "ada", None)
        return await set_rank(task, by, rank)

    monkeypatch.setattr(platform.task_manager, "set_rank", late)
    assert (await ada.tasks.MoveTask(pb.MoveTaskRequest(id=3, before=2))).id == 3
    assert [
        t.spec.name for t in sorted(platform.task_manager.unfinished().values(), key=_order)
    ] == [
        "c",
        "b",
    ]


def _order(task: Task) -> tuple[float, float, int]:
    return task.custom_rank, task.created_at, task.id


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.0, 0.5, 1.0, 1e300]), min_size=1, max_size=8), st.data()
)
def test_every_write_of_a_move_keeps_the_other_tasks_in_order(
    ranks: list[float], data: st.DataObject
) -> None:
    tasks = [
        replace(a_task(i + 1, name=f"t{i}"), custom_rank=r, created_at=float(i))
        for i, r in enumerate(ranks)
    ]
    task = data.draw(st.sampled_from(tasks))
    others = reordering.find_siblings(task, tasks)
    before = data.draw(st.sampled_from([0, *(t.id for t in others)]))
    place = next((i for i, t in enumerate(others) if t.id == before), 0)
    wanted = [t.id for t in others]
    held = {t.id: t for t in tasks}
    for task_id, rank in reordering.new_ranks(task, others, before):
        held[task_id] = replace(held[task_id], custom_rank=rank)
        rest = [t for t in held.values() if t.id != task.id]
        assert [t.id for t in sorted(rest, key=_order)] == wanted
    if 1e300 not in ranks:  # at larger ranks, adding 1 changes nothing
        wanted.insert(place, task.id)
        assert [t.id for t in sorted(held.values(), key=_order)] == wanted


def test_move_that_shifts_too_many_tasks_is_refused() -> None:
    tasks = [a_task(i, name=f"t{i}") for i in range(1, 4001)]
    with pytest.raises(Conflict, match="move task 4000 before the first"):
        reordering.new_ranks(tasks[-1], tasks[:-1], 2000)
    assert reordering.new_ranks(tasks[-1], tasks[:-1], 0) == [(4000, -1.0)]


async def test_task_reports_dropped_log_lines(platform: Any, make_spec: Any) -> None:
    ada = await platform.caller("ada")
    spec = make_spec("loud")
    spec.resource.node_count = 2
    task_id = (await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=spec))).id
    await platform.task_manager.apply(task_id, ev.RunPlaced(("n0", "n1"), Priority.LOW, "free"))
    key, data = RankKey(task_id, 1, 1), stamp(0.0) + b"x" * 1000 + b"\n"
    for _ in range(3000):
        platform.logs.append(key, platform.logs.size(key), data)
    quiet, loud = (await ada.tasks.GetTask(pb.GetTaskRequest(id=task_id))).run.ranks
    assert (quiet.log_dropped_bytes, quiet.log_dropped_lines) == (0, 0)
    assert loud.log_dropped_lines > 1000
    assert loud.log_dropped_bytes == loud.log_dropped_lines * len(data)


async def test_task_reports_its_goodput(platform: Any, make_spec: Any) -> None:
    ada = await platform.caller("ada")
    (task_id,) = await submit(ada, make_spec, "one")
    wanted = pb.GetTaskRequest(id=task_id)
    assert not (await ada.tasks.GetTask(wanted)).HasField("goodput")  # the task has not run
    await platform.task_manager.apply(task_id, ev.RunPlaced(("n0",), Priority.LOW, "free"))
    await platform.task_manager.apply(task_id, ev.RankAttached(1, 0, "10.0.0.1", 4000))
    platform.clock.advance(300)
    await platform.task_manager.apply(task_id, ev.ProgramStarted(1, 0))
    platform.clock.advance(900)
    found = (await ada.tasks.GetTask(wanted)).goodput
    assert (found.share, found.held_seconds, found.overhead_seconds) == (0.75, 1200, 300)
    assert (found.checkpoints, found.basis, found.HasField("advised_interval_seconds")) == (
        0,
        "default",
        False,
    )
    assert found.note.startswith("no checkpoint reported yet")
    (listed,) = (await ada.tasks.ListTasks(pb.ListTasksRequest())).tasks
    assert not listed.HasField("goodput")


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_task_whose_saves_will_not_fit_is_warned(
    platform: Any, make_spec: Any, validate_only: bool
) -> None:
    ada = await platform.caller("ada")
    earlier = replace(a_task(name="one"), state=TaskState.FINISHED)
    earlier = replace(earlier, id=0, progress=Progress(longest_save=8.3))
    stored = await platform.store.create_task(earlier, (), "")
    warnings = {
        name: (
            await ada.tasks.CreateTask(
                pb.CreateTaskRequest(spec=make_spec(name), validate_only=validate_only)
            )
        ).warnings
        for name in ("one", "two")
    }
    assert warnings == {
        "one": [
            f"task {stored.id} with the same name took 8 s to save, but save_within is 5 s: a run that must leave may"
            " be ended while it saves. Set save_within to about 15 s."
        ],
        "two": [],
    }

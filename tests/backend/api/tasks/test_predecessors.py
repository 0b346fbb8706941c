"""Predecessors of a submitted task: visibility and required outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from hai.v1 import task_service_pb2 as pb
from hai_backend.domain.task import Outcome


def after(spec: Any, *tasks: int, outcome: str = "") -> pb.CreateTaskRequest:
    for task in tasks:
        spec.options.after.add(task=task, outcome=outcome)
    return pb.CreateTaskRequest(spec=spec)


@pytest.mark.parametrize("outcome", [None, Outcome.SUCCEEDED, Outcome.FAILED], ids=str)
async def test_invisible_predecessor_is_not_found(
    platform: Any, make_spec: Any, expect_refusal: Any, outcome: Outcome | None
) -> None:
    ada, bob = await platform.caller("ada"), await platform.caller("bob")
    his = (await bob.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("his")))).id
    if outcome is not None:
        await platform.task_manager.stop(his, "bob", outcome)
    for validate_only in (False, True):
        request = after(make_spec("mine"), his, 99)
        request.validate_only = validate_only
        async with expect_refusal() as why:
            await ada.tasks.CreateTask(request)
        assert dict(why[0].violations) == {
            f"options.after[{i}].task": f"there is no task {number}; `hai list` shows yours"
            for i, number in enumerate((his, 99))
        }


async def test_shared_task_may_be_a_predecessor(platform: Any, make_spec: Any) -> None:
    ada, bob = await platform.caller("ada"), await platform.caller("bob")
    shared = make_spec("his")
    shared.options.shared_in_group = True
    his = (await bob.tasks.CreateTask(pb.CreateTaskRequest(spec=shared))).id
    made = await ada.tasks.CreateTask(after(make_spec("mine"), his))
    assert list(made.awaited) == [his]


async def test_repeated_request_succeeds_after_its_predecessor_ended(
    platform: Any, make_spec: Any
) -> None:
    ada = await platform.caller("ada")
    first = (await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec("first")))).id
    request = after(make_spec("next"), first)
    request.request_id = "r1"
    made = await ada.tasks.CreateTask(request)
    await platform.task_manager.stop(first, "ada", Outcome.FAILED)
    assert (await ada.tasks.CreateTask(request)).id == made.id


async def test_all_unmet_predecessors_are_reported_together(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    ada = await platform.caller("ada")
    for name, outcome in (("good", Outcome.SUCCEEDED), ("bad", Outcome.FAILED), ("off", None)):
        made = await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=make_spec(name)))
        await platform.task_manager.stop(made.id, "ada", outcome)
    async with expect_refusal() as why:
        await ada.tasks.CreateTask(after(make_spec("next"), 1, 2, 3))
    assert dict(why[0].violations) == {
        "options.after[1].task": "task 2 was to have succeeded first, and ended FAILED; "
        "`--after 2:failed` or `--after 2:ended` would let this one start",
        "options.after[2].task": "task 3 was to have succeeded first, and ended CANCELED; "
        "`--after 3:ended` would let this one start",
    }
    assert platform.task_manager.unfinished() == {}
    assert (await ada.tasks.CreateTask(after(make_spec("next"), 1))).id
    assert (await ada.tasks.CreateTask(after(make_spec("clean"), 1, 2, 3, outcome="ended"))).id

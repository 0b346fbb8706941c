"""The reason of a task that was asked to leave is that of the strongest cause, not that of the request."""

from __future__ import annotations

from typing import Any

import pytest

from hai_backend.domain.spec import OnEnd, PolicySpec, RoleSpec
from hai_backend.domain.task import Outcome, RunState, Task, TaskEvent, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step
from tests.backend.lifecycle.test_state_machine import NOW, exited, running

LIMIT = "its time limit of 60 s was reached"
SUSPENDED, SUCCEEDED, FAILED, STOPPED = "SUSPENDED", "SUCCEEDED", "FAILED", "STOPPED"
SUSPEND = ev.SuspendAsked("ada", "suspended by ada", hold=True)
EVICT = ev.SuspendAsked("scheduler", "task 9 needs the nodes", for_task=9)
DRAIN = ev.SuspendAsked("operator", "node n0 is drained: new disks")
STOP = ev.StopAsked("ada")
TICK = (NOW + 61, ev.Ticked(1))

ASKS = [
    pytest.param(SUSPEND, SUSPENDED, SUSPEND.reason, id="suspended by its user"),
    pytest.param(EVICT, SUSPENDED, EVICT.reason, id="preempted"),
    pytest.param(DRAIN, SUSPENDED, DRAIN.reason, id="drained"),
    pytest.param(STOP, STOPPED, "stopped by ada", id="stopped"),
    pytest.param(TICK, FAILED, LIMIT, id="out of time"),
]
ENDS = [
    pytest.param(0, "", id="exits 0"),
    pytest.param(3, "exit code 3", id="exits with a code"),
    pytest.param(137, "killed by SIGKILL (the kernel's", id="killed by somebody else"),
    pytest.param(139, "killed by SIGSEGV (invalid", id="dies by a signal of its own"),
]


def story(start: Task, *happened: Any) -> tuple[Task, list[TaskEvent]]:
    """Return the task after these events and the end of every rank, and its timeline. A tuple has its own time."""
    now, lines = NOW, []
    gone = [ev.RankGone(1, rank) for rank in range(start.node_count)]
    for item in (*happened, *gone):
        now, event = item if isinstance(item, tuple) else (now, item)
        done = step(start, event, now)
        start, lines = done.task, [*lines, *done.events]
    return start, lines


def became(task: Task) -> str:
    return task.outcome or task.state.value


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize(("code", "failure"), ENDS)
@pytest.mark.parametrize(("ask", "then", "why"), ASKS)
def test_a_program_that_ends_by_itself_while_it_is_asked_to_leave(
    ask: Any, then: str, why: str, code: int, failure: str, nodes: int
) -> None:
    """A failure is the reason wherever the task would have come back; a stop and a time limit end it anyway."""
    rest = [exited(rank, 0) for rank in range(1, nodes)]
    end, lines = story(running(nodes, time_limit=60), ask, exited(0, code), *rest)
    if not code and ask is not STOP:
        then, why = SUCCEEDED, "all ranks succeeded"
    elif then == SUSPENDED:
        then, why = FAILED, f"rank 0 on n0 failed: {failure}"
    assert became(end) == then
    assert end.reason.startswith(why)
    if then == FAILED:
        assert end.run is not None
        assert end.run.reason == end.reason
        told = [line.reason for line in lines if line.kind in ("RunTerminating", "RunEnded")]
        assert told == [end.reason] * 2
        assert lines[-1].reason == f"FAILED: {end.reason}"


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize(("ask", "then", "why"), ASKS)
def test_a_program_that_we_kill_once_it_had_its_time_has_not_failed(
    ask: Any, then: str, why: str, nodes: int
) -> None:
    killed = [exited(rank, 137) for rank in range(nodes)]
    end, lines = story(
        running(nodes, time_limit=60),
        ask,
        (NOW + 200, ev.Ticked(1)),
        (NOW + 203, killed[0]),
        *killed,
    )
    assert (became(end), end.reason) == (then, why)
    assert [line.reason for line in lines if line.kind == "ProgramExited"] == [
        "ended by SIGKILL"
    ] * nodes


@pytest.mark.parametrize(
    ("event", "then", "why"),
    [
        pytest.param(
            ev.StartFailed(1, 0, "no such file"),
            FAILED,
            "rank 0 on n0 could not start: no such file",
            id="it could not be started",
        ),
        pytest.param(
            ev.WatchdogFired(1, 0, 1900.0), FAILED, "rank 0 printed nothing for", id="it hangs"
        ),
        pytest.param(
            ev.LaunchFailed(1, 0, "no image"),
            SUSPENDED,
            "rank 0 could not be launched on n0: no image",
            id="it could not be launched",
        ),
        pytest.param(
            ev.RankGone(1, 0, "out of memory"),
            SUSPENDED,
            "the agent of rank 0 on n0 disappeared: out of memory",
            id="its agent is gone",
        ),
        pytest.param(
            ev.NodeReported(1, 0, "xid 79"),
            SUSPENDED,
            "rank 0 reported that its node n0 is broken: xid 79",
            id="it blames its node",
        ),
        pytest.param(ev.Yielded(1, 0), SUSPENDED, SUSPEND.reason, id="it yields"),
    ],
)
def test_the_strongest_cause_while_leaving_is_the_reason(
    event: ev.Event, then: str, why: str
) -> None:
    end, _ = story(running(), SUSPEND, event)
    assert became(end) == then
    assert end.reason.startswith(why)
    stopped, _ = story(running(), STOP, event)
    assert (became(stopped), stopped.reason) == (STOPPED, "stopped by ada")


def test_the_first_of_several_failures_is_the_reason() -> None:
    end, _ = story(running(3), SUSPEND, exited(1, 3), exited(0, 139), exited(2, 1))
    assert end.reason == "rank 1 on n1 failed: exit code 3"


def test_a_rank_that_hangs_after_a_failure_is_not_blamed_for_slow_saving() -> None:
    gathered = (NOW + 6, ev.Ticked(1))
    end, lines = story(running(4), SUSPEND, exited(1, 3), gathered)
    assert (became(end), end.reason) == (FAILED, "rank 1 on n1 failed: exit code 3")
    assert "SuspendForced" not in [line.kind for line in lines]


@pytest.mark.parametrize(
    ("policies", "code"),
    [
        pytest.param(PolicySpec(on_pod_failed=OnEnd.COMPLETE), 3, id="fail=complete"),
        pytest.param(PolicySpec(on_role_completed=OnEnd.COMPLETE), 0, id="role=complete"),
    ],
)
def test_a_policy_that_completes_a_task_does_so_while_it_is_asked_to_leave(
    policies: PolicySpec, code: int
) -> None:
    roles = (RoleSpec("master", 1), RoleSpec("worker", 1))
    end, _ = story(running(roles=roles, policies=policies), EVICT, exited(0, code))
    assert became(end) == Outcome.SUCCEEDED
    assert end.reason.endswith("policy: complete")


def test_a_failure_that_may_be_retried_is_the_reason_until_then() -> None:
    end, _ = story(running(1, max_retries=1), EVICT, exited(0, 3))
    assert end.state is TaskState.SUSPENDED
    assert end.reason == "rank 0 on n0 failed: exit code 3"
    assert end.run is not None
    assert end.run.state is RunState.ENDED

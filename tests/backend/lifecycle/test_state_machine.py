"""The state machine of tasks, row by row: a task, events, and the expected result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from hai_backend.domain.errors import Conflict, InvalidTransition
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import (
    OnEnd,
    OptionsSpec,
    PolicySpec,
    ProgramSpec,
    ResourceSpec,
    RoleSpec,
    TaskSpec,
)
from hai_backend.domain.task import Outcome, RankState, RunState, StopCode, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import step, steps
from hai_backend.lifecycle.exit_codes import describe_exit_code
from hai_backend.lifecycle.instructions import (
    EndPrograms,
    KillRanks,
    Launch,
    SendWholeLifeState,
    StartPrograms,
    SuspendPrograms,
)
from hai_backend.lifecycle.state_machine import IGNORED, TABLE

NOW = 1000.0


def task(
    nodes: int = 2,
    policies: PolicySpec = PolicySpec(),
    roles: tuple[RoleSpec, ...] = (),
    **options: Any,
) -> Task:
    spec = TaskSpec(
        "t",
        ProgramSpec("train.py"),
        resource=ResourceSpec(node_count=nodes),
        options=OptionsSpec(**options),
        policies=policies,
        roles=roles,
    )
    return Task(1, "ada", spec, TaskState.WAITING_INIT, Priority.NORMAL, created_at=0.0)


def after(start: Task, *happened: ev.Event | tuple[float, ev.Event]) -> Task:
    """Apply events. A tuple has its own time."""
    now = NOW
    for item in happened:
        now, event = item if isinstance(item, tuple) else (now, item)
        start = step(start, event, now).task
    return start


def placed(nodes: int = 2) -> ev.RunPlaced:
    return ev.RunPlaced(tuple(f"n{i}" for i in range(nodes)), Priority.NORMAL, "free")


def attach(rank: int, run: int = 1) -> ev.RankAttached:
    return ev.RankAttached(run, rank, f"10.0.0.{rank}", 4000 + rank)


def running(nodes: int = 2, **kw: Any) -> Task:
    start = after(
        task(nodes, **kw), placed(nodes), ev.RunLaunched(1), *(attach(i) for i in range(nodes))
    )
    return after(start, *(ev.ProgramStarted(1, i) for i in range(nodes)))


def gone(*ranks: int) -> list[ev.Event]:
    return [ev.RankGone(1, r) for r in ranks]


def exited(rank: int, code: int = 0, yielded: bool = False) -> ev.ProgramExited:
    return ev.ProgramExited(1, rank, code, "last words", yielded)


SUSPEND = ev.SuspendAsked("scheduler", "task 9 needs the nodes", for_task=9)
STOP = ev.StopAsked("ada")
ACK, YIELD = ev.SuspendAcknowledged(1, 0), ev.Yielded(1, 0)
BROKEN = ev.NodeReported(1, 1, "xid 79")
TICK = ev.Ticked(1)
SILENT, LOST = ev.AgentSilent(1, 1, NOW - 10), ev.NodeLost(1, 1, "no power")


def ends(start: Task, *happened: Any) -> Task:
    """Return the task after these events and after every rank is gone."""
    start = after(start, *happened)
    assert start.run is not None
    return after(start, *gone(*(r.index for r in start.run.ranks)))


FINISHES = [
    pytest.param(running(), [exited(0), exited(1)], Outcome.SUCCEEDED, id="all ranks exit 0"),
    pytest.param(running(), [exited(0), exited(1, 3)], Outcome.FAILED, id="one rank fails last"),
    pytest.param(
        running(),
        [exited(1, 3), (NOW + 6, TICK)],
        Outcome.FAILED,
        id="one rank fails, the other hangs",
    ),
    pytest.param(
        running(), [exited(1, 137), exited(0, 137)], Outcome.FAILED, id="killed by someone"
    ),
    pytest.param(
        running(), [STOP, YIELD], Outcome.STOPPED, id="stopped, program saved and yielded"
    ),
    pytest.param(
        running(),
        [STOP, exited(0), exited(1)],
        Outcome.STOPPED,
        id="stopped, program ended itself well",
    ),
    pytest.param(
        running(), [STOP, (NOW + 6, TICK)], Outcome.STOPPED, id="stopped, program did not listen"
    ),
    pytest.param(running(), [STOP, STOP, STOP, YIELD], Outcome.STOPPED, id="stop is idempotent"),
    pytest.param(running(), [SUSPEND, STOP, YIELD], Outcome.STOPPED, id="stop during suspend"),
    pytest.param(running(), [STOP, SUSPEND, YIELD], Outcome.STOPPED, id="suspend during stop"),
    pytest.param(running(), [SUSPEND, YIELD, STOP], Outcome.STOPPED, id="stop while terminating"),
    pytest.param(
        running(),
        [ev.StopAsked("ada", Outcome.SUCCEEDED), YIELD],
        Outcome.SUCCEEDED,
        id="marked succeeded",
    ),
    pytest.param(
        running(), [ev.StopAsked("ada", Outcome.FAILED), YIELD], Outcome.FAILED, id="marked failed"
    ),
    pytest.param(running(), [STOP, BROKEN], Outcome.STOPPED, id="node reported during stop"),
    pytest.param(running(), [BROKEN, STOP], Outcome.STOPPED, id="stopped after its report"),
    pytest.param(
        running(time_limit=60),
        [(NOW + 61, TICK), (NOW + 62, BROKEN)],
        Outcome.FAILED,
        id="node reported at the end of its time",
    ),
    pytest.param(
        running(),
        [ev.StopAsked("ada", Outcome.FAILED), STOP, YIELD],
        Outcome.FAILED,
        id="the first mark counts",
    ),
    pytest.param(after(task(), placed()), [STOP], Outcome.STOPPED, id="stop before launch"),
    pytest.param(
        after(task(), placed(), ev.RunLaunched(1), attach(0)),
        [STOP],
        Outcome.STOPPED,
        id="stop in building",
    ),
    pytest.param(
        running(),
        [SUSPEND, exited(0), exited(1)],
        Outcome.SUCCEEDED,
        id="finished while suspending",
    ),
    pytest.param(
        running(),
        [SUSPEND, exited(0, 1), (NOW + 6, TICK)],
        Outcome.FAILED,
        id="failed while suspending",
    ),
    pytest.param(
        running(),
        [ev.WatchdogFired(1, 0, 1900.0)],
        Outcome.FAILED,
        id="hangs: the watchdog ends it",
    ),
    pytest.param(
        running(timeout=60), [(NOW + 61, TICK), YIELD], Outcome.FAILED, id="timeout of one run"
    ),
    pytest.param(
        running(time_limit=60),
        [(NOW + 61, TICK), (NOW + 70, TICK)],
        Outcome.FAILED,
        id="time limit, forced",
    ),
    pytest.param(
        running(),
        [ev.StartFailed(1, 1, "no such file")],
        Outcome.FAILED,
        id="program could not be started",
    ),
    pytest.param(
        running(policies=PolicySpec(on_pod_failed=OnEnd.COMPLETE)),
        [exited(0, 1)],
        Outcome.SUCCEEDED,
        id="fail=complete",
    ),
    pytest.param(
        running(policies=PolicySpec(on_pod_failed=OnEnd.IGNORE)),
        [exited(0, 1), exited(1)],
        Outcome.SUCCEEDED,
        id="fail=ignore",
    ),
    pytest.param(
        running(3, policies=PolicySpec(min_available=2)),
        [exited(0, 1), exited(1), exited(2)],
        Outcome.SUCCEEDED,
        id="elastic: two of three are enough",
    ),
    pytest.param(
        running(policies=PolicySpec(on_pod_evicted=OnEnd.FAIL)),
        [ev.RankGone(1, 0)],
        Outcome.FAILED,
        id="evicted=fail",
    ),
    pytest.param(
        running(
            roles=(RoleSpec("master", 1), RoleSpec("worker", 1)),
            policies=PolicySpec(on_role_completed=OnEnd.COMPLETE),
        ),
        [exited(0)],
        Outcome.SUCCEEDED,
        id="the master's success completes the task",
    ),
]


@pytest.mark.parametrize(("start", "happened", "outcome"), FINISHES)
def test_a_task_finishes(start: Task, happened: list[Any], outcome: Outcome) -> None:
    end = ends(start, *happened)
    assert (end.state, end.outcome) == (TaskState.FINISHED, outcome)
    assert end.finished_at is not None
    assert end.reason


def test_a_rank_on_a_lost_node_exists_until_the_launcher_reports_its_end() -> None:
    lost = step(after(running(), SILENT), ev.NodeLost(1, 1, "no power"), NOW)
    assert lost.task.run is not None
    assert (lost.task.state, lost.task.run.state) == (TaskState.RUNNING, RunState.TERMINATING)
    assert KillRanks(1, (1,)) in lost.instructions
    other = step(lost.task, ev.RankGone(1, 0), NOW).task
    assert other.run is not None
    assert [rank.state.terminated for rank in other.run.ranks] == [True, False]
    again = step(other, ev.NodeLost(1, 1, "no power"), NOW)
    assert (again.task, again.instructions) == (other, (KillRanks(1, (1,)),))
    end = step(other, ev.RankGone(1, 1), NOW).task
    assert (end.state, end.node_failure_count) == (TaskState.SUSPENDED, 1)
    assert "was lost: no power" in end.reason


def test_while_an_agent_answers_the_program_on_a_lost_node_is_asked_to_save() -> None:
    done = step(running(save_within=9), LOST, NOW)
    assert done.instructions == (SuspendPrograms(1, (0, 1), 9),)
    run = done.task.run
    assert run is not None
    assert (run.state, run.stop_code) == (RunState.SUSPENDING, StopCode.INTERRUPT)
    assert run.reason == "node n1 was lost: no power; the agent of rank 1 answers"
    for state in (done.task, step(running(), STOP, NOW).task):
        again = step(state, LOST, NOW + 1)
        assert (again.task, again.instructions) == (state, ())
    forced = step(done.task, (tick := ev.Ticked(1, run.deadline)), NOW + 60).task
    assert forced.run is not None
    assert forced.run.state is RunState.TERMINATING
    killed = step(forced, replace(tick, passed=forced.run.deadline), NOW + 70)
    assert killed.instructions == (KillRanks(1, (0, 1)),)


@pytest.mark.parametrize(
    ("before", "policy", "state"),
    [
        pytest.param([SILENT], OnEnd.RESTART, RunState.TERMINATING, id="its agent is silent"),
        pytest.param([SUSPEND, SILENT], OnEnd.RESTART, RunState.TERMINATING, id="silent, saving"),
        pytest.param([exited(0, 1)], OnEnd.RESTART, RunState.TERMINATING, id="the run has failed"),
        pytest.param([], OnEnd.FAIL, RunState.STOPPING, id="evicted=fail"),
        pytest.param([], OnEnd.COMPLETE, RunState.STOPPING, id="evicted=complete"),
        pytest.param([], OnEnd.IGNORE, RunState.RUNNING, id="evicted=ignore: without it"),
    ],
)
def test_the_policy_decides_what_a_lost_node_means(
    before: list[Any], policy: OnEnd, state: RunState
) -> None:
    start = after(running(policies=PolicySpec(on_pod_evicted=policy)), *before)
    lost = step(start, LOST, NOW)
    assert lost.task.run is not None
    assert lost.task.run.state is state
    given_up = state in (RunState.TERMINATING, RunState.RUNNING)
    assert (KillRanks(1, (1,)) in lost.instructions) is given_up


def test_why_something_else_ended_a_rank_is_told() -> None:
    gone = step(running(), ev.RankGone(1, 1, "it used too much memory"), NOW).task
    assert gone.run is not None
    assert gone.run.reason.endswith("disappeared: it used too much memory")


def test_many_events_are_one_change() -> None:
    start = after(task(), placed(), ev.RunLaunched(1))
    done = steps(start, [attach(0), attach(1)], NOW)
    one_by_one = step(step(start, attach(0), NOW).task, attach(1), NOW)
    assert done.task == replace(one_by_one.task, revision=start.revision + 1)
    assert [event.kind for event in done.events].count("RankAttached") == 2
    assert done.instructions == one_by_one.instructions
    assert steps(start, [], NOW).task is start


RETURNS = [
    pytest.param(
        running(), [SUSPEND, ACK, YIELD], StopCode.INTERRUPT, id="suspended, acknowledged, yielded"
    ),
    pytest.param(
        running(), [SUSPEND, (NOW + 6, TICK)], StopCode.INTERRUPT, id="never acknowledged: forced"
    ),
    pytest.param(
        running(),
        [SUSPEND, ACK, (NOW + 6, TICK)],
        StopCode.INTERRUPT,
        id="acknowledged, never yielded: forced",
    ),
    pytest.param(running(), [YIELD], StopCode.INTERRUPT, id="yielded by itself"),
    pytest.param(
        running(),
        [exited(0, 0, yielded=True)],
        StopCode.INTERRUPT,
        id="its yield was lost, its exit was not",
    ),
    pytest.param(
        running(suspend_signal="SIGTERM"),
        [SUSPEND, exited(0), exited(1, 143)],
        StopCode.INTERRUPT,
        id="a program that only knows SIGTERM",
    ),
    pytest.param(
        running(),
        [SUSPEND, exited(0, 143), exited(1, 143)],
        StopCode.INTERRUPT,
        id="left by SIGTERM",
    ),
    pytest.param(
        after(task(), placed()), [SUSPEND], StopCode.INTERRUPT, id="suspend before launch"
    ),
    pytest.param(
        after(task(), placed(), ev.RunLaunched(1), attach(0)),
        [SUSPEND],
        StopCode.INTERRUPT,
        id="suspend in building",
    ),
    pytest.param(running(), [ev.RankGone(1, 1)], StopCode.NODE_FAILURE, id="an agent disappeared"),
    pytest.param(
        running(), [ev.NodeLost(1, 1, "no power")], StopCode.NODE_FAILURE, id="a node was lost"
    ),
    pytest.param(
        running(),
        [exited(0, 1), ev.NodeLost(1, 1, "no power")],
        StopCode.NODE_FAILURE,
        id="a sibling died of the lost node: not the program's fault",
    ),
    pytest.param(running(), [BROKEN], StopCode.HOOK_RESTART, id="its node is broken, it says"),
    pytest.param(
        running(), [SUSPEND, BROKEN], StopCode.HOOK_RESTART, id="node reported while suspending"
    ),
    pytest.param(
        running(),
        [exited(0, 1), BROKEN],
        StopCode.HOOK_RESTART,
        id="a sibling failed first, then a rank reported its node",
    ),
    pytest.param(
        running(),
        [BROKEN, ev.NodeReported(1, 0, "too"), exited(0, 1), exited(1, 1)],
        StopCode.HOOK_RESTART,
        id="both ranks report, then fail",
    ),
    pytest.param(
        running(max_retries=1),
        [exited(0, 1), exited(1, 1)],
        StopCode.FAILED,
        id="a failure that may be retried",
    ),
    pytest.param(
        running(policies=PolicySpec(on_pod_failed=OnEnd.RESTART)),
        [exited(0, 1), exited(1, 1)],
        StopCode.HOOK_RESTART,
        id="fail=restart",
    ),
    pytest.param(
        after(task(), placed(), ev.RunLaunched(1)),
        [ev.LaunchFailed(1, 0, "no room", True)],
        StopCode.UNSCHEDULABLE,
        id="no room on the node",
    ),
    pytest.param(
        after(task(), placed(), ev.RunLaunched(1)),
        [ev.LaunchFailed(1, 0, "no image")],
        StopCode.INIT_FAILED,
        id="could not be launched",
    ),
    pytest.param(
        after(task(), placed(), ev.RunLaunched(1), attach(1)),
        [(NOW + 61, TICK)],
        StopCode.INIT_FAILED,
        id="a rank never attached",
    ),
]


@pytest.mark.parametrize(("start", "happened", "code"), RETURNS)
def test_a_task_returns_to_the_queue(start: Task, happened: list[Any], code: StopCode) -> None:
    end = ends(start, *happened)
    assert end.state is TaskState.SUSPENDED
    assert end.run is not None
    assert end.run.state is RunState.ENDED
    assert end.run.stop_code & code
    assert all(r.state.terminated for r in end.run.ranks)
    assert end.created_at == start.created_at  # its old position


def test_the_gang_barrier_opens_with_the_last_rank() -> None:
    building = after(task(), placed(), ev.RunLaunched(1), attach(1))
    assert building.run is not None
    assert building.run.state is RunState.BUILDING
    opened = step(building, attach(0), NOW)
    assert opened.instructions == (StartPrograms(1, (0, 1)),)


def test_placing_launches_every_rank() -> None:
    assert step(task(), placed(), NOW).instructions == (Launch(1, (0, 1)),)


def test_suspending_asks_every_live_rank_and_waits() -> None:
    done = step(running(ack_within=7, save_within=9), SUSPEND, NOW)
    assert done.instructions == (SuspendPrograms(1, (0, 1), 9),)
    assert done.task.run is not None
    assert done.task.run.deadline == NOW + 7
    acknowledged = step(done.task, ACK, NOW + 1).task
    assert acknowledged.run is not None
    assert acknowledged.run.deadline == NOW + 1 + 9


def test_a_second_suspend_request_sends_nothing() -> None:
    once = step(running(), SUSPEND, NOW).task
    again = step(once, SUSPEND, NOW)
    assert again.task is once
    assert again.instructions == ()


def test_a_yield_ends_all_ranks_and_nodes_are_free_only_when_they_are_gone() -> None:
    done = step(step(running(), SUSPEND, NOW).task, YIELD, NOW)
    assert isinstance(done.instructions[0], EndPrograms)
    half = after(done.task, *gone(0))
    assert half.state is TaskState.RUNNING
    assert after(half, *gone(1)).state is TaskState.SUSPENDED


def test_ranks_that_never_attached_are_ended_by_force() -> None:
    building = after(task(), placed(), ev.RunLaunched(1), attach(1))
    done = step(building, SUSPEND, NOW)
    assert [type(i) for i in done.instructions] == [EndPrograms, KillRanks]
    assert done.instructions[1] == KillRanks(1, (0,))


def test_ranks_that_do_not_end_are_killed_repeatedly_with_one_line() -> None:
    terminating = after(running(), SUSPEND, YIELD, *gone(0))
    killed = step(terminating, TICK, NOW + 8)
    assert killed.instructions == (KillRanks(1, (1,)),)
    (line,) = killed.events
    assert (line.kind, line.reason) == ("KilledByForce", "rank 1 on n1 did not end in time")
    again = step(killed.task, TICK, NOW + 30)
    assert again.instructions == (KillRanks(1, (1,)),)
    assert again.events == ()
    assert again.task.revision == killed.task.revision + 1


def test_a_deadline_has_passed_when_the_monotonic_clock_says_so() -> None:
    asked = after(running(), SUSPEND)
    deadline = asked.run.deadline
    day = 86_400  # by which the clock is set back
    assert step(asked, TICK, NOW - day).task is asked
    assert step(asked, ev.Ticked(1, deadline - 1), NOW - day).task is asked
    forced = step(asked, ev.Ticked(1, deadline), NOW - day)
    assert forced.task.run.state is RunState.TERMINATING


def test_a_run_that_ends_when_the_clock_was_set_back_has_taken_no_time() -> None:
    """The next start is not delayed until the clock reaches the old time."""
    then = NOW - 500
    back = after(running(), (then, YIELD), *((then, event) for event in gone(0, 1)))
    assert back.state is TaskState.SUSPENDED
    assert (back.run_seconds, back.not_before) == (0.0, then + 10)


def test_a_program_that_ends_its_agent_is_started_less_and_less_often() -> None:
    start, not_before = running(nodes=1), []
    for number in (1, 2, 3):
        start = step(start, ev.RankGone(number, 0), NOW + 1).task
        not_before.append(start.not_before - NOW)
        start = after(start, placed(1), ev.RunLaunched(number + 1), attach(0, number + 1))
        start = after(start, ev.ProgramStarted(number + 1, 0))
    assert not_before == [10, 20, 40]


def test_a_rank_that_succeeds_gives_its_node_back_early() -> None:
    half = after(running(), exited(0), *gone(0))
    assert half.run is not None
    assert half.run.state is RunState.RUNNING
    assert half.run.ranks[0].state is RankState.SUCCEEDED


def test_the_next_run_has_the_next_number_and_the_whole_life_state() -> None:
    kept = step(running(), ev.WholeLifeStateChanged(1, 0, 42), NOW)
    assert kept.instructions == (SendWholeLifeState(1, (1,), 42),)
    second = after(ends(kept.task, SUSPEND, YIELD), placed())
    assert second.run is not None
    assert (second.run.number, second.run.whole_life_state) == (2, 42)


def test_retries_back_off_and_end() -> None:
    first = ends(running(max_retries=1), exited(0, 1), exited(1, 1))
    assert first.not_before == NOW + 10
    again = [placed(), ev.RunLaunched(2), attach(0, 2), attach(1, 2)]
    second = after(first, *again, ev.ProgramExited(2, 0, 1), ev.ProgramExited(2, 1, 1))
    second = after(second, ev.RankGone(2, 0), ev.RankGone(2, 1))
    assert second.outcome is Outcome.FAILED
    assert "max_retries 1" in second.reason


def report_at(seconds: float, number: int, start: Task) -> Task:
    """Start run `number` now, and report its node as broken after so many seconds."""
    begun = [placed(1), ev.RunLaunched(number), attach(0, number)]
    ending = [ev.NodeReported(number, 0, "xid 79"), ev.RankGone(number, 0)]
    return after(start, *begun, *((NOW + seconds, event) for event in ending))


def test_a_program_that_reports_every_node_is_started_less_and_less_often() -> None:
    one, waits = task(1), []
    for number in range(1, 9):
        one = report_at(0.5, number, one)
        waits.append(one.not_before - NOW)
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
    assert (one.node_failure_count, one.failure_count) == (8, 0)  # counts as no failure of the task


def test_a_long_run_on_a_broken_node_is_resumed_at_once() -> None:
    back = report_at(3600.0, 1, task(1))
    assert back.state is TaskState.SUSPENDED
    assert back.not_before < NOW + 3600
    assert "its node n0 is broken: xid 79" in back.reason


def test_a_delay_that_a_person_asked_for_outlasts_a_report() -> None:
    asked = ev.SuspendAsked("ada", "later", delay=900.0)
    assert ends(running(), asked, BROKEN).not_before == NOW + 900


@pytest.mark.parametrize(
    ("happened", "not_before"),
    [
        pytest.param([YIELD], NOW + 10, id="at once: starts lie apart"),
        pytest.param([exited(0, 0, yielded=True)], NOW + 10, id="its yield was lost"),
        pytest.param([(NOW + 60, YIELD)], NOW + 10, id="after a while: back at once"),
        pytest.param([SUSPEND, YIELD], 0.0, id="it was asked to: back at once"),
    ],
)
def test_a_program_that_yields_without_being_asked_is_delayed(
    happened: list[Any], not_before: float
) -> None:
    assert ends(running(), *happened).not_before == not_before


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "succeeded"), (137, "killed by SIGKILL"), (192, "killed by signal 64")]
    + [(126, "exit code 126: the program is not"), (127, "exit code 127: the program was")]
    + [(code, f"exit code {code}") for code in (1, 128, 193, 255)],
)
def test_exit_codes_are_described(code: int, words: str) -> None:
    assert describe_exit_code(code).startswith(words)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (137, "ended by SIGKILL"),
        (143, "ended by SIGTERM"),
        (139, "killed by SIGSEGV (invalid memory access)"),
        (3, "exit code 3"),
    ],
)
def test_no_cause_is_guessed_for_a_program_that_the_platform_ended(code: int, words: str) -> None:
    assert describe_exit_code(code, by_platform=True) == words


def test_a_role_that_completes_at_once_does_not_restart_its_task_without_pause() -> None:
    roles = (RoleSpec("master", 1), RoleSpec("worker", 1))
    start = running(roles=roles, policies=PolicySpec(on_role_completed=OnEnd.RESTART))
    assert ends(start, exited(0)).not_before == NOW + 10


def test_repeated_launch_failures_end_the_task() -> None:
    one = task(1)
    for number in range(1, 6):
        one = after(one, placed(1), ev.RunLaunched(number), ev.LaunchFailed(number, 0, "no image"))
    assert one.outcome is Outcome.FAILED
    assert "no image" in one.reason


def test_a_refusal_by_a_node_does_not_count_as_a_launch_failure() -> None:
    """A kubelet may refuse a pod because of pods that only the kubelet knows. The task must not be sent there again."""
    one = task(1)
    for number in range(1, 20):
        refused = ev.LaunchFailed(number, 0, "no room (cpu)", unschedulable=True)
        one = after(one, placed(1), ev.RunLaunched(number), refused)
        assert (one.state, one.launch_failure_count) == (TaskState.SUSPENDED, 0)
        assert one.not_before == NOW + 10
    assert "no room (cpu)" in one.reason


def test_a_held_task_stays_held_after_its_suspension_until_it_is_resumed() -> None:
    held = ends(running(), ev.SuspendAsked("ada", "by ada", hold=True), YIELD)
    assert held.held
    assert not after(held, ev.ResumeAsked("ada")).held


def test_stopping_a_task_that_never_ran_cancels_it() -> None:
    assert after(task(), STOP).outcome is Outcome.CANCELED


def test_stopping_a_finished_task_changes_nothing_but_resuming_it_is_a_conflict() -> None:
    finished = after(task(), STOP)
    assert step(finished, STOP, NOW).task is finished
    with pytest.raises(Conflict, match="submit it again"):
        step(finished, ev.ResumeAsked("ada"), NOW)


@pytest.mark.parametrize(
    ("happened", "again"),
    [
        pytest.param([SUSPEND], ev.SuspendAcknowledged(1, 0), id="acknowledged"),
        pytest.param([], exited(0), id="exited"),
        pytest.param([STOP, YIELD], exited(0, 143), id="exited when told"),
        pytest.param([exited(0)], ev.RankGone(1, 0), id="gone"),
        pytest.param([SUSPEND], ev.LaunchFailed(1, 0, "no image"), id="could not be launched"),
        pytest.param([], ev.WholeLifeStateChanged(1, 0, 7), id="a state of the program"),
        pytest.param([], ev.PriorityChanged("ada", Priority.HIGH), id="another level"),
        pytest.param([], ev.Labelled("ada", ("x",), True), id="labels"),
        pytest.param([], STOP, id="stop"),
    ],
)
def test_repeated_events_change_nothing(happened: list[Any], again: ev.Event) -> None:
    before = after(running(), *happened)
    once = step(before, again, NOW).task
    assert once is not before
    twice = step(once, again, NOW + 1)
    assert (twice.task, twice.events, twice.instructions) == (once, (), ())


def test_a_program_starts_once() -> None:
    attached = after(task(), placed(), ev.RunLaunched(1), attach(0), attach(1))
    once = step(attached, ev.ProgramStarted(1, 0), NOW).task
    assert once.started_at == NOW
    assert step(once, ev.ProgramStarted(1, 0), NOW + 1).task is once


@pytest.mark.parametrize(
    "happened",
    [
        pytest.param([], id="no limit"),
        pytest.param([SUSPEND], id="asked to save"),
        pytest.param([STOP], id="asked to stop"),
        pytest.param([STOP, YIELD], id="ending"),
        pytest.param([exited(0, 1)], id="gathering"),
    ],
)
def test_a_deadline_that_has_not_passed_changes_nothing(happened: list[Any]) -> None:
    before = after(running(), *happened)
    assert step(before, TICK, NOW + 0.5).task is before
    created = after(task(), placed())
    assert step(created, TICK, NOW + 0.5).task is created


def test_a_later_yield_or_failure_does_not_change_the_outcome_of_a_failure() -> None:
    gathering = after(running(3), exited(0, 1))
    assert step(gathering, ev.Yielded(1, 1), NOW + 1).task is gathering
    failed = after(gathering, (NOW + 1, exited(1, 2)))
    assert failed.run is not None
    assert gathering.run is not None
    assert (failed.run.reason, failed.run.deadline) == (
        gathering.run.reason,
        gathering.run.deadline,
    )
    assert failed.run.state is RunState.RUNNING


def test_a_finished_task_may_still_be_labelled() -> None:
    done = ends(running(), STOP, YIELD)
    assert after(done, ev.Labelled("ada", ("kept",), True)).tags == ("kept",)


def test_events_of_an_older_run_change_nothing() -> None:
    second = after(ends(running(), SUSPEND, YIELD), placed())
    for late in (exited(0, 1), attach(0), *gone(0), YIELD, TICK):
        assert step(second, late, NOW).task is second


@pytest.mark.parametrize("event", get_args(ev.RunEvent), ids=lambda e: e.__name__)
@pytest.mark.parametrize("state", list(RunState))
def test_every_pair_of_state_and_event_has_a_rule_or_is_ignored_or_raises_an_error(
    state: RunState, event: type
) -> None:
    pair = (state, event)
    assert not (pair in TABLE and pair in IGNORED)
    if pair in TABLE or pair in IGNORED:
        return
    start = running()
    assert start.run is not None
    start = replace(start, run=replace(start.run, state=state))
    with pytest.raises(InvalidTransition, match=f"{event.__name__} has no rule in {state}"):
        step(start, _any(event), NOW)


def _any(event: type) -> ev.Event:
    known: dict[type, ev.Event] = {
        ev.SuspendAcknowledged: ACK,
        ev.SaveProgressed: ev.SaveProgressed(1, 0, 1, 2),
        ev.CheckpointLost: ev.CheckpointLost(1, 0, 28, "n0", None),
        ev.CheckpointLoaded: ev.CheckpointLoaded(1, 0, 0.5),
        ev.Yielded: YIELD,
        ev.ProgramExited: exited(0),
        ev.ProgramStarted: ev.ProgramStarted(1, 0),
        ev.WatchdogFired: ev.WatchdogFired(1, 0, 1.0),
        ev.NodeReported: BROKEN,
        ev.WholeLifeStateChanged: ev.WholeLifeStateChanged(1, 0, 1),
    }
    return known[event]


@pytest.mark.parametrize(
    ("node", "resumed_step", "reason"),
    [
        ("n0", 20, "of step 28 was lost with the memory of node n0; continues from step 20"),
        ("", None, "of step 28 was lost with the memory of its node; continues from the beginning"),
    ],
)
def test_a_lost_checkpoint_is_told(node: str, resumed_step: int | None, reason: str) -> None:
    done = step(running(), ev.CheckpointLost(1, 0, 28, node, resumed_step), NOW)
    (line,) = done.events
    assert (line.kind, line.reason) == ("CheckpointLost", f"checkpoint {reason}")


def test_every_change_adds_a_line_with_actor_and_reason() -> None:
    done = step(running(), SUSPEND, NOW)
    (line,) = done.events
    assert (line.actor, line.kind, line.reason, line.run) == (
        "scheduler",
        "SuspendAsked",
        "task 9 needs the nodes",
        1,
    )
    assert done.task.revision == running().revision + 1

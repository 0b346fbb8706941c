"""After any events in any order, a task is in a valid state, and its gang is complete or absent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.errors import Conflict, InvalidTransition
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import (
    OnEnd,
    OptionsSpec,
    PolicySpec,
    ProgramSpec,
    ResourceSpec,
    TaskSpec,
)
from hai_backend.domain.task import Outcome, RunState, Task, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import find_relaunch, instructions_on_attach, step
from hai_backend.lifecycle.instructions import KillRanks, Launch, StartPrograms
from hai_backend.lifecycle.rules.transition import may_continue, may_run

NODES = 2
ranks = st.integers(0, NODES - 1)
runs = st.integers(1, 3)
asks = st.one_of(
    st.builds(
        ev.StopAsked, st.just("ada"), st.sampled_from([None, Outcome.SUCCEEDED, Outcome.FAILED])
    ),
    st.builds(
        ev.SuspendAsked,
        st.just("scheduler"),
        st.just("why"),
        hold=st.booleans(),
        delay=st.sampled_from([0.0, 9.0]),
    ),
    st.just(ev.ResumeAsked("ada")),
    st.just(ev.RunPlaced(("n0", "n1"), Priority.HIGH, "free")),
)
happenings = st.one_of(
    st.builds(ev.RunLaunched, runs),
    st.builds(ev.LaunchFailed, runs, ranks, st.just("no"), st.booleans()),
    st.builds(ev.RankGone, runs, ranks),
    st.builds(ev.NodeLost, runs, ranks, st.just("no power")),
    st.builds(ev.RankAttached, runs, ranks, st.just("10.0.0.1"), st.just(4000)),
    st.builds(ev.ProgramStarted, runs, ranks),
    st.builds(ev.StartFailed, runs, ranks, st.just("no file")),
    st.builds(ev.SuspendAcknowledged, runs, ranks),
    st.builds(ev.SaveProgressed, runs, ranks, st.integers(-1, 9), st.integers(-1, 9)),
    st.builds(ev.Yielded, runs, ranks),
    st.builds(
        ev.ProgramExited, runs, ranks, st.sampled_from([0, 1, 137, 143]), st.just(""), st.booleans()
    ),
    st.builds(ev.WatchdogFired, runs, ranks, st.just(9.0)),
    st.builds(ev.CheckpointLost, runs, ranks, st.integers(0, 99), st.just("n"), st.none()),
    st.builds(ev.CheckpointLoaded, runs, ranks, st.floats()),
    st.builds(ev.NodeReported, runs, ranks, st.just("xid 79")),
    st.builds(ev.WholeLifeStateChanged, runs, ranks, st.integers(0, 5)),
    st.builds(ev.AgentSilent, runs, ranks, st.floats(0, 100)),
    st.builds(ev.AgentHeard, runs, ranks),
    st.builds(ev.Ticked, runs),
)
stories = st.lists(
    st.tuples(st.floats(0, 20), st.one_of(asks, happenings, happenings, happenings)), max_size=60
)
specs = st.builds(
    OptionsSpec,
    max_retries=st.integers(0, 2),
    suspend_signal=st.sampled_from(["", "SIGTERM"]),
    timeout=st.just(30),
)
policies = st.builds(
    PolicySpec,
    on_pod_failed=st.sampled_from(OnEnd),
    on_pod_evicted=st.sampled_from(OnEnd),
    min_available=st.integers(0, 2),
)


def legal(task: Task) -> None:
    run = task.run
    if task.state is TaskState.WAITING_INIT:
        assert run is None
    if task.state is TaskState.SUSPENDED:
        assert run is not None
        assert run.state is RunState.ENDED
    if task.state is TaskState.RUNNING:
        assert run is not None
        assert run.state is not RunState.ENDED
    assert (
        (task.state is TaskState.FINISHED)
        == (task.outcome is not None)
        == (task.finished_at is not None)
    )
    if task.outcome is Outcome.FAILED and task.wanted_outcome is None:
        assert not task.reason.startswith("why")  # a request to leave is not a failure
    progress = task.progress
    work = progress.held_seconds - progress.overhead_seconds
    assert -1e-6 <= progress.lost_seconds <= work + 1e-6  # the parts add up to the time on nodes
    assert progress.overhead_seconds >= 0
    if run is not None:
        assert len(run.ranks) == NODES  # a gang is complete …
        assert (run.state is RunState.ENDED) == all(
            r.state.terminated for r in run.ranks
        )  # … or absent
        assert (run.ended_at is not None) == (run.state is RunState.ENDED)
        assert all(r.silent_since is None or may_run(r) for r in run.ranks)
        if run.state in (RunState.SUSPENDING, RunState.STOPPING, RunState.TERMINATING):
            assert run.deadline is not None  # no state lasts for ever
            assert run.reason


@settings(max_examples=400, deadline=None)
@given(stories, specs, policies)
def test_a_task_is_always_in_a_legal_state(
    story: list[tuple[float, ev.Event]], options: OptionsSpec, policy: PolicySpec
) -> None:
    spec = TaskSpec(
        "t",
        ProgramSpec("t.py"),
        resource=ResourceSpec(node_count=NODES),
        options=options,
        policies=policy,
    )
    task, now, told_to_go = (
        Task(1, "ada", spec, TaskState.WAITING_INIT, Priority.LOW, 0.0),
        0.0,
        set(),
    )
    for wait, event in story:
        now += wait
        try:
            done = step(task, event, now)
        except (Conflict, InvalidTransition):
            continue
        legal(done.task)
        changed = done.task is not task
        assert done.task.revision == task.revision + changed
        killed = task.run is not None and task.run.killed_at is not None
        told_once = killed and isinstance(event, ev.Ticked)  # killed again
        assert bool(done.events) == (changed and not told_once)
        for killed_ranks in (i for i in done.instructions if isinstance(i, KillRanks)):
            assert done.task.run is not None
            for index in (
                killed_ranks.ranks
            ):  # from now on the lease is not renewed, and the launcher counts the seconds
                assert not may_continue(done.task.run, done.task.run.ranks[index])
        told_to_go |= {(i.run) for i in done.instructions if isinstance(i, StartPrograms)}
        if isinstance(event, ev.ProgramStarted) and changed:
            assert event.run in told_to_go  # no program starts before its whole gang has attached
        for repeated in (
            find_relaunch(done.task),
            *instructions_on_attach(done.task, 0, started=False),
        ):
            assert repeated is None or isinstance(repeated, Launch) or repeated.ranks == (0,)
        task = done.task


@settings(max_examples=200, deadline=None)
@given(stories)
def test_every_task_can_be_stopped_in_any_state(story: list[tuple[float, ev.Event]]) -> None:
    """However it got there: a stop, time, and ranks that go away finish the task."""
    spec = TaskSpec("t", ProgramSpec("t.py"), resource=ResourceSpec(node_count=NODES))
    task, now = Task(1, "ada", spec, TaskState.WAITING_INIT, Priority.LOW, 0.0), 0.0
    for wait, event in story:
        now += wait
        try:
            task = step(task, event, now).task
        except (Conflict, InvalidTransition):
            continue
    task = step(task, ev.StopAsked("ada"), now).task
    for _ in range(4):
        if task.run is not None and task.state is TaskState.RUNNING:
            now = max(now, task.run.deadline or now)
            task = step(task, ev.Ticked(task.run.number), now).task
            if task.run is not None and task.run.state is RunState.TERMINATING:
                for rank in range(NODES):
                    task = step(task, ev.RankGone(task.run.number, rank), now).task
    assert task.state is TaskState.FINISHED
